"""Text as it comes: whole characters, and in the end the same as decoding everything at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.errors import SettingsError
from engine.text import Detokenizer, Tokenizer
from tests.engine.text.texts import TEXTS
from tests.engine.text.vocabularies import byte_level, sentencepiece


@pytest.fixture(scope="module", params=["byte level", "sentencepiece", "sentencepiece without prefix"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "byte level":
        return Tokenizer.from_metadata(byte_level("smollm", merges=["t h", "th e"]))
    return Tokenizer.from_metadata(sentencepiece(space_prefix=request.param == "sentencepiece"))


def pieces(tokenizer: Tokenizer, ids: list[int], **options: Any) -> list[str]:
    stream = Detokenizer(tokenizer, **options)
    return [*(stream.push(token_id) for token_id in ids), stream.flush()]


def test_valid_text_comes_in_whole_characters(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text, parse_special=False, add_bos=False)
        come = pieces(tokenizer, ids)
        assert "".join(come) == text
        assert not any("\ufffd" in piece for piece in come)


def test_a_character_of_several_tokens_comes_with_the_last(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("\U0001f9ed", parse_special=False, add_bos=False)[-4:]
    assert pieces(tokenizer, ids) == ["", "", "", "\U0001f9ed", ""]


def test_any_ids_whatever_give_what_decoding_them_gives(tokenizer: Tokenizer) -> None:
    draws = random.Random(4)
    for _ in range(300):
        ids = [draws.randrange(tokenizer.size) for _ in range(draws.randrange(30))]
        for skip_special in (True, False):
            assert "".join(pieces(tokenizer, ids, skip_special=skip_special)) == tokenizer.decode(
                ids, skip_special=skip_special
            )


def test_bytes_that_cannot_become_a_character_are_shown_at_once_and_those_that_can_are_not(
    tokenizer: Tokenizer,
) -> None:
    by_bytes = {tokenizer.token_bytes(token_id): token_id for token_id in reversed(range(tokenizer.size))}
    lead, letter, never = by_bytes[b"\xe2"], by_bytes[b"e"], by_bytes[b"\xff"]
    assert pieces(tokenizer, [lead, letter, never, lead]) == ["", "\ufffde", "\ufffd", "", "\ufffd"]


def test_a_stream_that_is_cut_off_drops_the_beginning_of_a_character_and_nothing_else(tokenizer: Tokenizer) -> None:
    by_bytes = {tokenizer.token_bytes(token_id): token_id for token_id in reversed(range(tokenizer.size))}
    emoji = [by_bytes[bytes([byte])] for byte in "\U0001f9ed".encode()]
    for kept in (1, 2, 3):
        stream = Detokenizer(tokenizer)
        pushed = [stream.push(token_id) for token_id in [by_bytes[b"e"], by_bytes[b"\xff"], *emoji[:kept]]]
        assert ("".join(pushed), stream.flush(cut=True)) == ("e\ufffd", "")


def test_a_stream_that_goes_on_from_a_text_keeps_its_first_blank() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece())
    ids = tokenizer.encode("the wheel", parse_special=False, add_bos=False)
    assert "".join(pieces(tokenizer, ids)) == "the wheel"
    assert "".join(pieces(tokenizer, ids, continues=True)) == " the wheel"


def test_special_tokens_are_left_out_and_do_not_count_as_the_beginning() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece())
    ids = [1, *tokenizer.encode("the", parse_special=False, add_bos=False), 2]
    assert "".join(pieces(tokenizer, ids)) == "the"
    assert "".join(pieces(tokenizer, ids, skip_special=False)) == "<s> the</s>"


def test_a_special_token_that_is_kept_is_text() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece())
    ids = [1, *tokenizer.encode("the", parse_special=False, add_bos=False), 1, 2]
    assert "".join(pieces(tokenizer, ids, keep=("</s>", "<none>"))) == "the</s>"


def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match="no token"):
        Detokenizer(tokenizer).push(tokenizer.size)
