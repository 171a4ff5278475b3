"""`millstream fingerprint`."""

from __future__ import annotations

import json

import pytest

from tests.app.running import Program, output


def test_fingerprint_is_the_same_whatever_the_threads_the_chunk_and_the_instruction_set(
    millstream: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("fingerprint", "tiny", "-p", "A mill by the river", "-n", "4")
    one = json.loads(output(millstream(*command, "--json", "--threads", "1")))
    assert list(one) == ["tokens", "sha256"] and len(one["tokens"]) == 4 and len(one["sha256"]) == 64
    assert json.loads(output(millstream(*command, "--json", "--threads", "2", "--chunk", "7"))) == one
    assert one["sha256"] in output(millstream(*command, "--chunk", "1"))
    assert json.loads(output(millstream(*command, "--json", "--kv", "f32")))["sha256"] != one["sha256"]
    monkeypatch.setenv("MILLSTREAM_ISA", "portable")
    assert json.loads(output(millstream(*command, "--json"))) == one
