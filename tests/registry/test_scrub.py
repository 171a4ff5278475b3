"""Text without secrets."""

from __future__ import annotations

import logging

import pytest

from registry.scrub import ScrubFilter, scrub


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("token hf_AbCdEf123456 was sent", "token hf_… was sent"),
        ("hf_oauth_eyJh.eyJz-x.y_z!", "hf_…!"),
        ("Authorization: Bearer abc.def", "Authorization: …"),
        ("{'authorization': 'Bearer s3cret', 'x': 'y'}", "{'authorization': '…', 'x': 'y'}"),
        ("[(b'Authorization', b'Basic dXNlcjpwYXNz'), (b'Host', b'h')]", "[(b'Authorization', b'…'), (b'Host', b'h')]"),
        ("sent Bearer abcdefgh.ijk now", "sent Bearer … now"),
        ("GET https://cdn.x/lfs/ab?X-Amz-Signature=12&e=3 failed", "GET https://cdn.x/lfs/ab?… failed"),
        ("(https://a/b?c#d)", "(https://a/b?…"),
        ("proxy http://me:secret@host:3128/ refused", "proxy http://…@host:3128/ refused"),
    ],
)
def test_secrets_are_taken_out(text: str, clean: str) -> None:
    assert scrub(text) == clean
    assert scrub(clean) == clean


@pytest.mark.parametrize("text", ["What is this? https://hub.example/a/b#c", "half_of_it is 3", "the bearer of news"])
def test_ordinary_text_stays(text: str) -> None:
    assert scrub(text) == text


def test_a_log_has_no_secrets_in_messages_arguments_or_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(ScrubFilter())
    log = logging.getLogger("test.scrub")
    try:
        raise ValueError("hf_inatraceback")
    except ValueError:
        log.exception("for %s at %r", "hf_inargument", "https://a/b?sig=secretsig")
    assert "for hf_… at" in caplog.text and "ValueError: hf_…" in caplog.text
    assert not any(secret in caplog.text for secret in ("inatraceback", "inargument", "secretsig"))
