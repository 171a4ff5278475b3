"""`millstream chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from app import options
from app.console import BAD_INPUT, Progress, Thoughts, complain, note, note_cut, note_reasoning, open_engine, write
from app.placement import sentence
from engine import (
    Cancel,
    ContextError,
    Finished,
    Image,
    ImageError,
    Message,
    MillstreamError,
    ModelFileError,
    PrefillProgress,
    Reasoning,
    Settings,
    SettingsError,
    StorageError,
    Text,
    ToolCall,
)

if TYPE_CHECKING:
    from engine import Engine

NAME = "chat"
SUMMARY = "chat in the terminal"

COMMANDS = (
    "/image FILE adds a picture to the next question, /new begins again, /open opens the model again, /quit leaves"
)
ALONE = ("/new", "/open", "/quit")
"""Commands that take nothing."""
HELP = f"Ctrl+C stops a reply, {COMMANDS}."

WAYS_OUT = {ContextError: "`/new` begins again.", ModelFileError: "`/open` opens the model again."}


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(default="starter"), options.sampling()


def configure(parser: argparse.ArgumentParser) -> None:
    """All its options are shared."""


def execute(arguments: argparse.Namespace) -> int:
    """A line that is refused, or whose reply fails, does not end the conversation. Away from a terminal, where nobody
    sees that, the exit code tells."""
    refused = 0
    with closing(_Talk(arguments)) as talk:
        _enable_line_editing()
        while (line := _question()) is not None:
            try:
                if not talk.take(line):
                    break
            except StorageError:
                raise
            except MillstreamError as error:
                refused += 1
                complain(" ".join([str(error), *(way for kind, way in WAYS_OUT.items() if isinstance(error, kind))]))
    return BAD_INPUT if refused and not _at_a_terminal() else 0


class _Talk:
    """The conversation so far, and the engine that answers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        budgets, self._settings = options.budgets(arguments), options.settings(arguments)
        self._final_only: bool = arguments.final_only
        self._open = partial(open_engine, arguments.model, budgets, arguments.mmproj)
        self._opening = options.opening(arguments)
        self._messages = list(self._opening)
        self._images: list[Image] = []
        self._engine: Engine | None = self._open()
        note(f"{self._engine.info.name}. {HELP}")
        if self._engine.plan.streams:
            note(sentence(self._engine.plan))

    def take(self, line: str) -> bool:
        """Answer what the person wrote, or do as it says: → whether to go on. Raises MillstreamError."""
        command = line.strip()
        first = command.split(maxsplit=1)[0] if command else ""
        if command == "/quit":
            return False
        if command == "/new":
            self._begin_again()
        elif command == "/open":
            self._open_again()
        elif first == "/image":
            self._images.append(_image(command.removeprefix("/image").strip()))
            note(f"{self._images[-1].name} goes with the next question.")
        elif first in ALONE:
            other = f" To open another model, leave and begin with `millstream {NAME} MODEL`." * (first == "/open")
            raise SettingsError(f"{first} stands alone: write nothing after it.{other}")
        elif command.startswith("/") and not command.startswith("//"):
            raise SettingsError(
                f"There is no command {first}: {COMMANDS}. To send a line that begins with a slash, write two."
            )
        elif command:
            self._ask(command[1:] if command.startswith("//") else line)
        return True

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _begin_again(self) -> None:
        self._messages = list(self._opening)
        self._images.clear()
        note("A new conversation.")

    def _open_again(self) -> None:
        """The conversation goes on with what the file holds now."""
        self.close()
        self._engine = self._open()
        note(f"{self._engine.info.name} is open again.")

    def _ask(self, question: str) -> None:
        """What came of a reply that failed stays part of the conversation."""
        if self._engine is None:
            raise MillstreamError("No model is open: `/open` opens it.")
        self._messages.append(Message("user", question, images=tuple(self._images)))
        self._images.clear()
        pieces: list[str] = []
        try:
            _reply(self._engine, self._messages, self._settings, pieces, final_only=self._final_only)
        finally:
            reply = "".join(pieces)
            if reply.strip():
                self._messages.append(Message("assistant", reply))
            else:
                # Many templates refuse two turns of the same role in a row.
                self._messages.pop()


def _image(path: str) -> Image:
    """Raises ImageError for a file that cannot be read."""
    from engine.vision.images import read

    if not path:
        raise ImageError("Name the picture after /image.")
    file = _file(path)
    return Image(read(file), file.name)


def _file(typed: str) -> Path:
    """The file that a person means: quotes, and backslashes before blanks, are those of a shell, as a terminal writes
    them where a file is dropped, unless there is a file of that very name."""
    try:
        spelled = " ".join(shlex.split(typed))
    except ValueError:  # a quote without its other one
        spelled = typed
    files = [os.path.expanduser(name) for name in (typed, spelled)]
    return Path(next(filter(os.path.exists, files), files[0]))


def _question() -> str | None:
    """The next line that the person types, `None` at the end (Ctrl+D, or Ctrl+C twice).

    Raises SettingsError where standard input cannot be read, or is not text.
    """
    if not _at_a_terminal():
        return _line()
    warned = False
    while True:
        try:
            return input("\n> ")
        except EOFError:
            write("\n")
            return None
        except KeyboardInterrupt:
            write("\n")
            if warned:
                return None
            warned = True
            note("Press Ctrl+C again or Ctrl+D to leave.")


def _line() -> str | None:
    """The next line of a file or a pipe, `None` at its end."""
    try:
        line = sys.stdin.buffer.readline()
        return line.decode("utf-8").rstrip("\r\n") if line else None
    except UnicodeDecodeError as error:
        raise SettingsError("Standard input is not UTF-8 text.") from error
    except OSError as error:
        raise SettingsError(f"Standard input cannot be read: {error.strerror}.") from error


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _enable_line_editing() -> None:
    """Arrow keys and a history, where the system has them; importing is all it takes."""
    if _at_a_terminal():
        with suppress(ImportError):
            import readline  # noqa: F401


def _reply(
    engine: Engine, messages: Sequence[Message], settings: Settings, pieces: list[str], *, final_only: bool
) -> None:
    """Stream one reply to standard output, and its text into `pieces`."""
    progress, shown = Progress(), Thoughts(hidden=final_only)
    reasoning = ""
    finished: Finished | None = None
    try:
        with _interrupt_cancels() as cancel:
            for event in engine.chat(messages, settings, cancel=cancel):
                match event:
                    case PrefillProgress(done, total, picture=picture):
                        progress.show("Looking at a picture" if picture else "Reading", done, total)
                    case Reasoning(text):
                        progress.clear()
                        shown.show(text)
                        reasoning += text
                    case Text(text):
                        progress.clear()
                        shown.close()
                        pieces.append(text)
                        write(text)
                    case ToolCall(name):
                        progress.clear()
                        shown.close()
                        complain(f"The model asks for the tool {name}, and here it has none.")
                    case Finished():
                        finished = event
    finally:
        progress.clear()
        shown.close()
        write("\n")
    if finished is not None:
        note_cut(finished, engine.context_length, "; /new begins again")
    note_reasoning(settings, reasoning)


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
