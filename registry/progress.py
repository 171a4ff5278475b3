"""How far a download is, and its line in a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Progress:
    """`done` of `total` bytes of work; `what` names the step in plain words. `done` never falls."""

    what: str
    done: int
    total: int


class ProgressLine:
    """Shows progress on a terminal in one line that is written over; elsewhere in a line for each fifth of the way."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._shown = ""

    def __call__(self, progress: Progress) -> None:
        percent = 100 * progress.done // progress.total if progress.total else 100
        if not self._live:
            percent -= percent % 20
        line = f"{progress.what}: {percent} %"
        if line != self._shown:
            self._shown = line
            self._stream.write(f"\r\x1b[K{line}" if self._live else f"{line}\n")
            self._stream.flush()

    def close(self) -> None:
        """Leave the line clean for whatever is written next."""
        if self._live and self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = ""
