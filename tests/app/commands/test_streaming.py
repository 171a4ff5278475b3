"""The file of a model that streams, lost in the middle of a reply."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.app.running import POSIX, WAIT, Terminal, begin
from tests.tiny_chat import write_tiny_chat

LITTLE = ("--ram", "6MB", "--chunk", "16", "--temperature", "0")


@pytest.fixture
def mill(folder: Path) -> Path:
    """A model of 13 MB."""
    return write_tiny_chat(folder / "mill.gguf", ffn=4096, layers=16)


@POSIX
def test_chat_gives_the_prompt_back_and_opens_the_model_again(mill: Path, library: Path) -> None:
    whole = mill.read_bytes()
    with Terminal(library, "chat", str(mill), *LITTLE) as terminal:
        terminal.until("Streams ")
        terminal.until("> ")
        terminal.type("Hello\r")
        terminal.until("Hello\r\n")
        terminal.until("\x1b[K")  # the line of progress has given way to the first word
        os.truncate(mill, len(whole) // 8)
        assert "mill.gguf" in terminal.until("`/open` opens the model again.")
        terminal.until("> ")
        mill.write_bytes(whole)
        terminal.type("/open\r")
        terminal.until("is open again")
        terminal.until("> ")
        terminal.type("/new\r")
        terminal.until("A new conversation.")
        terminal.type("/quit\r")
        assert terminal.process.wait(WAIT) == 0


@pytest.mark.parametrize("command", ["run", "chat"])
def test_away_from_a_terminal_the_words_end_their_line_and_the_code_tells(mill: Path, command: str) -> None:
    prompt = ("-p", "Hello") if command == "run" else ()
    with begin(command, str(mill), *prompt, *LITTLE) as process:
        if command == "chat":
            process.stdin.write(b"Hello\n")
            process.stdin.close()
            process.stdin = None
        first = process.stdout.read(1)
        os.truncate(mill, 1_000_000)
        rest, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 2
    assert (first + rest).endswith(b"\n")
    said = errors.decode()
    assert said.startswith("millstream: ") and "mill.gguf" in said and said.count("\n") == 1
