"""The command line. Without arguments it opens the window; `millstream COMMAND --help` tells the rest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import IO, NoReturn

from app import signals
from app.commands import ALIASES, COMMANDS
from app.console import BAD_INPUT, complain, open_standard_streams, write
from engine import address_space
from engine.errors import DownloadError, MillstreamError

INSTEAD = "To chat in the terminal: millstream chat."


class Parser(argparse.ArgumentParser):
    """Refuses bad arguments in one sentence, and notices where its help cannot be written."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(BAD_INPUT)

    def print_help(self, file: IO[str] | None = None) -> None:
        write(self.format_help())


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top: argparse.ArgumentParser = Parser(
        prog="millstream",
        description="Chat with language models on this machine. Without a command the window opens.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="tell the version and leave")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        summary = command.SUMMARY
        sub = commands.add_parser(
            command.NAME,
            aliases=ALIASES.get(command.NAME, ()),
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            parents=command.parents(),
            allow_abbrev=False,
        )
        command.configure(sub)
        sub.set_defaults(execute=command.execute)
    return top


def run(argv: Sequence[str]) -> int:
    """Run one command: → the exit code. What a person can mend is said in one sentence, and 2 returned."""
    open_standard_streams()
    try:
        arguments = parser().parse_args(argv)
        if arguments.version:
            write(f"millstream {_version()}\n")
            return 0
        address_space.prepare()
        if "execute" not in arguments:
            return _open_window()
        code: int = arguments.execute(arguments)
        return code
    except MillstreamError as error:
        complain(f"{error}{_how(error)}")
        return BAD_INPUT
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and address_space.limit() is None:
            raise
        way = address_space.raise_it()
        complain(f"The system refused the memory for this: {way}close other programs, or choose a smaller model.")
        return BAD_INPUT
    finally:
        # All is said and done: what is left to interrupt is Python's own end.
        signals.ignore_interrupts()


def _how(error: MillstreamError) -> str:
    """By which command to do what a sentence that the window says, too, asks for."""
    if not isinstance(error, DownloadError):
        return ""
    from registry.sources.source import needs_token

    return " To keep one: millstream token set" if needs_token(error) else ""


def _version() -> str:
    """What is installed; "0" where the program runs from its source alone."""
    from importlib import metadata

    try:
        return metadata.version("millstream")
    except metadata.PackageNotFoundError:
        return "0"


def _open_window() -> int:
    # Qt ends the process where it finds no display, so that is looked at first.
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))):
        raise MillstreamError(f"There is no display to open a window on. {INSTEAD}")
    # Qt is imported here alone, so that commands run on machines that have no libraries for windows.
    try:
        from app.window import open_window
    except ImportError as error:
        raise MillstreamError(f"The window cannot open: {error}. {INSTEAD}") from error
    signals.by_default()
    return open_window(None)
