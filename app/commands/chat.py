"""`millstream chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from app import options
from app.console import Progress, open_engine, write
from engine import Cancel, Finished, Message, MillstreamError, PrefillProgress, Settings, Text

if TYPE_CHECKING:
    from engine import Engine

NAME = "chat"
SUMMARY = "chat in the terminal"

HELP = "Ctrl+C stops a reply, /new starts over, /quit leaves."


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(default="starter"), options.sampling()


def configure(parser: argparse.ArgumentParser) -> None:
    """All its options are shared."""


def execute(arguments: argparse.Namespace) -> int:
    budgets, settings = options.budgets(arguments), options.settings(arguments)
    opening = options.opening(arguments)
    with open_engine(arguments.model, budgets) as engine:
        _note(f"{engine.info.name}. {HELP}")
        _enable_line_editing()
        messages = list(opening)
        while (line := _question()) is not None:
            match line.strip():
                case "":
                    continue
                case "/quit":
                    break
                case "/new":
                    messages = list(opening)
                    _note("A new conversation.")
                    continue
            messages.append(Message("user", line))
            try:
                reply = _reply(engine, messages, settings)
            except MillstreamError as error:
                write("\n")
                print(f"millstream: {error}", file=sys.stderr)
                reply = ""
            if reply:
                messages.append(Message("assistant", reply))
            else:
                # Many templates refuse two turns of the same role in a row.
                messages.pop()
    return 0


def _question() -> str | None:
    """The next line that the person types, `None` at the end (Ctrl+D, or Ctrl+C on an empty line)."""
    if not _at_a_terminal():
        return sys.stdin.readline() or None
    try:
        return input("\n> ")
    except (EOFError, KeyboardInterrupt):
        write("\n")
        return None


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _enable_line_editing() -> None:
    """Arrow keys and a history, where the system has them; importing is all it takes."""
    if _at_a_terminal():
        with suppress(ImportError):
            import readline  # noqa: F401


def _reply(engine: Engine, messages: Sequence[Message], settings: Settings) -> str:
    """Stream one reply to standard output: → its text, as far as it came."""
    progress = Progress()
    pieces: list[str] = []
    with _interrupt_cancels() as cancel:
        for event in engine.chat(messages, settings, cancel=cancel):
            match event:
                case PrefillProgress(done, total):
                    progress.show("Reading", done, total)
                case Text(text):
                    progress.clear()
                    pieces.append(text)
                    write(text)
                case Finished("context"):
                    _note("\nThe context is full; /new starts over.")
    progress.clear()
    write("\n")
    return "".join(pieces)


@contextmanager
def _interrupt_cancels() -> Iterator[Cancel]:
    """The first Ctrl+C within stops the reply, the second one leaves the program."""
    cancel = Cancel()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


def _note(text: str) -> None:
    """Said to a person at a terminal, not to a pipe."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
