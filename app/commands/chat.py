"""`millstream chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from app import options
from app.console import Progress, Thoughts, complain, note, note_cut, note_reasoning, open_engine, write
from engine import (
    Cancel,
    ContextError,
    Finished,
    Image,
    ImageError,
    Message,
    MillstreamError,
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

HELP = "Ctrl+C stops a reply, /image FILE adds a picture to the next question, /new begins again, /quit leaves."


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(default="starter"), options.sampling()


def configure(parser: argparse.ArgumentParser) -> None:
    """All its options are shared."""


def execute(arguments: argparse.Namespace) -> int:
    budgets, settings = options.budgets(arguments), options.settings(arguments)
    opening = options.opening(arguments)
    with open_engine(arguments.model, budgets, arguments.mmproj) as engine:
        note(f"{engine.info.name}. {HELP}")
        _enable_line_editing()
        messages = list(opening)
        images: list[Image] = []
        while (line := _question()) is not None:
            command = line.strip()
            if not command:
                continue
            if command == "/quit":
                break
            if command == "/new":
                messages = list(opening)
                images.clear()
                note("A new conversation.")
                continue
            if command.split()[0] == "/image":
                try:
                    images.append(_image(command.removeprefix("/image").strip()))
                    note(f"{images[-1].name} goes with the next question.")
                except ImageError as error:
                    complain(error)
                continue
            if command.startswith("//"):
                line = command[1:]
            elif command.startswith("/"):
                complain(
                    f"There is no command {command.split()[0]}: /image FILE adds a picture, /new begins again, "
                    "/quit leaves. To send a line that begins with a slash, write two."
                )
                continue
            messages.append(Message("user", line, images=tuple(images)))
            images.clear()
            try:
                reply = _reply(engine, messages, settings, final_only=arguments.final_only)
            except StorageError:
                raise
            except MillstreamError as error:
                write("\n")
                complain(f"{error} `/new` begins again." if isinstance(error, ContextError) else error)
                reply = ""
            if reply:
                messages.append(Message("assistant", reply))
            else:
                # Many templates refuse two turns of the same role in a row.
                messages.pop()
    return 0


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


def _reply(engine: Engine, messages: Sequence[Message], settings: Settings, *, final_only: bool) -> str:
    """Stream one reply to standard output: → its text, as far as it came."""
    progress, shown = Progress(), Thoughts(hidden=final_only)
    pieces: list[str] = []
    reasoning = ""
    finished: Finished | None = None
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
    progress.clear()
    shown.close()
    write("\n")
    if finished is not None:
        note_cut(finished, way_out=": /new begins again")
    note_reasoning(settings, reasoning)
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
