"""`millstream info`, on good files and bad ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.running import Program, output, refusal


def test_info_tells_what_the_file_holds(millstream: Program, library: Path) -> None:
    told = json.loads(output(millstream("info", "tiny", "--json")))
    assert told["path"] == str(library / "models" / "tiny.gguf")
    assert (told["name"], told["architecture"], told["context_length"]) == ("Tiny Chat", "llama", 256)
    assert "Tiny Chat" in output(millstream("info", str(library / "models" / "tiny.gguf")))


@pytest.mark.parametrize("command", ["info", "run"])
@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"Once upon a time", "truncated", "unsupported"])
def test_a_bad_file_gets_one_sentence_that_names_it(
    millstream: Program, library: Path, tmp_path: Path, command: str, content: bytes | str | None
) -> None:
    path = tmp_path / "bad.gguf"
    whole = (library / "models" / "tiny.gguf").read_bytes()
    if content == "truncated":
        path.write_bytes(whole[:-3000])
    elif content == "unsupported":
        path.write_bytes(whole.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0alien"))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    sentence = refusal(millstream(command, str(path), *(("-p", "a") if command == "run" else ())))
    assert "alien" in sentence if content == "unsupported" else "bad.gguf" in sentence
