"""What commands share: output that fails politely, progress on a terminal, and models by name."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from app.placement import context_less, granted_less
from app.places import measurements_file
from engine import Budgets, Finished, Settings, SettingsError, StorageError
from engine.units import NAMED, elided, plural

if TYPE_CHECKING:
    from engine import Engine

BAD_INPUT = 2
"""The exit code of a run in which something was refused with a sentence."""

LEAST_COLUMNS = 40
"""Characters of a line that is broken by us: a narrower terminal breaks it once more."""


def open_standard_streams() -> None:
    """Have standard input, output and error in UTF-8 on open descriptors, whatever the program was started with.

    A closed one must be taken before another file gets its number. Reading the input or writing the output then fails
    as on any unusable file; what is written to standard error vanishes.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, mode)
            if null != number:
                os.dup2(null, number)
                os.close(null)
    # Python has no stream where a descriptor was closed when it started.
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def write(text: str) -> None:
    """Put the asked-for output on standard output at once.

    Raises BrokenPipeError where the reader has gone, StorageError where the disk behind a redirection refuses.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
        raise
    except OSError as error:
        _abandon(sys.stdout)
        raise StorageError(f"The output cannot be written: {error.strerror}.") from error


def columns() -> int:
    """Characters of a line on standard output."""
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def complain(message: object) -> None:
    """Say on standard error what is wrong, in one line."""
    tell(f"millstream: {message}")


def tell(message: str) -> None:
    """Say something on standard error, in one line."""
    _tell(plain(message))


def plain(text: str) -> str:
    """In one line: what a terminal would obey becomes U+FFFD, and an endless word keeps its ends."""
    line = "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)
    return " ".join(elided(word, NAMED) for word in line.split(" "))


def note(text: str) -> None:
    """Said to a person at a terminal, not to a pipe."""
    if sys.stderr.isatty():
        _tell(text)


def confirm(question: str) -> bool:
    """Ask a person at a terminal, who says yes or, by anything else, no. Raises SettingsError where nobody is there."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError(f"{question} Nobody is there to answer: say --yes to do it.")
    _write_error(f"{plain(question)} [y/N] ")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        _write_error("\n")
    return answer.strip().casefold() in ("y", "yes")


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lines of columns, each as wide as its widest cell; those whose numbers are in `right` are set to the right."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return "".join(f"{line}\n" for line in lines)


def note_cut(finished: Finished, context: int, way_out: str = "") -> None:
    """Mark a reply that did not come to its own end, on a line after it. `way_out` is named where the context, so
    many tokens, is full.

    A person who stopped the reply knows, and so does who bounded it. That the context cut the reply off, or that an
    answer is missing, is said to a pipe too.
    """
    tell, inside = (_tell, " inside its reasoning") if finished.in_reasoning else (note, "")
    if finished.reason == "length":
        tokens = finished.usage.completion_tokens
        tell(f"[stopped{inside} at {tokens} {plural(tokens, 'token')}]")
    elif finished.reason == "context":
        _tell(f"[cut off{inside}: the context of {context:,} {plural(context, 'token')} is full{way_out}]")
    elif finished.reason == "stop" and finished.in_reasoning:
        tell("[ended inside its reasoning, without an answer]")


def note_reasoning(settings: Settings, reasoning: str) -> None:
    """Say that the model reasoned where it was asked not to."""
    if settings.thinking is False and reasoning:
        complain("The model reasoned although it was asked not to: its chat template could not keep it from that.")


class Thoughts:
    """What a model thinks before it answers, dimmed on standard error; nothing where that is no terminal.

    `hidden` leaves a line which says that it thinks.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self._hidden = hidden
        self._line = Progress()
        self._open = False

    def show(self, text: str) -> None:
        if self._hidden:
            self._line.show("Thinking", 0, 0)
        elif self._terminal and text:
            _write_error(text if self._open else f"\x1b[2m{text}")
            self._open = True

    def close(self) -> None:
        """Leave a blank line before the answer."""
        self._line.clear()
        if self._open:
            _write_error("\x1b[0m\n\n")
            self._open = False


def _tell(text: str) -> None:
    _write_error(f"{text}\n")


def _write_error(text: str) -> None:
    """Never raises: where nobody can be told, the exit code still tells."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _abandon(sys.stderr)


def _abandon(stream: IO[str]) -> None:
    """What is still buffered must not fail a second time when Python flushes it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _beginning(line: str, most: int) -> str:
    """At most so many characters, from its beginning."""
    return line if len(line) <= most else f"{line[: most - 1]}…"


class Progress:
    """One line on standard error that renews itself, and nothing at all where that is no terminal."""

    def __init__(self) -> None:
        self._shown = ""
        self._terminal = sys.stderr.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        """`done` of `total`, in whole percent; `total` 0 where it is not known."""
        self.say(f"{what} … {100 * done // total} %" if total else f"{what} …")

    def say(self, line: str) -> None:
        """Any text, as far as one line of the terminal holds it."""
        line = _beginning(plain(line), columns() - 1)
        if self._terminal and line != self._shown:
            _write_error(f"\r\x1b[K{line}")
            self._shown = line

    def clear(self) -> None:
        """Leave the line empty for what comes next."""
        if self._shown:
            _write_error("\r\x1b[K")
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


def tower_of(path: Path, mmproj: str | None) -> Path | None:
    """The vision tower that was chosen, or the one that the library knows of where it does not lie beside the model."""
    from registry.library import Library

    return Library.default().tower_of(path) if mmproj is None else Path(mmproj)


def open_engine(model: str, budgets: Budgets, mmproj: str | None = None) -> Engine:
    """Find and load MODEL, which sees with `mmproj` or with the tower beside it.

    What memory there is less of than was named is said to a pipe too; of the context, which nobody named, a person at
    a terminal is told. Raises MillstreamError of whichever kind fits.
    """
    from engine import Engine

    path = find_model(model)
    line = Progress()
    line.show("Opening the model", 0, 0)
    try:
        engine = Engine.load(
            path,
            budgets,
            mmproj=tower_of(path, mmproj),
            progress=lambda step: line.show(step.what, step.done, step.total),
            measurements=measurements_file(),
        )
    finally:
        line.clear()
    if less := granted_less(engine.plan):
        complain(less)
    if less := context_less(engine.plan):
        note(less)
    return engine
