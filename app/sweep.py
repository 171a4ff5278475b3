"""One model under several budgets of memory, each measured in a process of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from app import child
from app.child import Command
from app.console import BAD_INPUT
from app.placement import NOTHING
from engine.errors import MillstreamError
from engine.units import UNITS

WHO = "The measurement"

DIGITS = 12
"""Of a fingerprint, in the table."""

COLUMNS = (
    (7, "", "ram"),
    (8, "", "resident"),
    (7, "read", "a token"),
    (6, "decode", "tok/s"),
    (7, "prefill", "tok/s"),
    (5, "", "stall"),
    (5, "", "hits"),
    (7, "", "arena"),
    (7, "", "peak"),
)
"""Width and two lines of heading each; the fingerprint comes last."""


@dataclass(frozen=True)
class Row:
    """What was told of one budget, `None` for the engine's own choice. `error` is why nothing was."""

    ram: int | None
    told: Mapping[str, Any]
    error: str = ""


def sweep(
    commands: Sequence[tuple[int | None, Command]], limit: float, progress: Callable[[int | None, int], None]
) -> Iterator[Row]:
    """Run the commands one after the other, each of which is to print an object as `bench --json` does.

    One that fails gives a row with its sentence, and the others go on. `progress` is told which budget is measured and
    how many have been. Leaving early, Ctrl+C included, ends the command that runs.
    """
    for done, (ram, command) in enumerate(commands):
        progress(ram, done)
        try:
            yield _row(ram, command, limit)
        except MillstreamError as error:
            yield Row(ram, {}, str(error))


def _row(ram: int | None, command: Command, limit: float) -> Row:
    ended = child.run(WHO, command, limit)
    if ended.status:
        # What our own program refuses, it says whole.
        return Row(ram, {}, ended.said if ended.status == BAD_INPUT and ended.said else f"{WHO} {ended.fault}")
    told = ended.told()
    if told is None:
        raise MillstreamError(f"{WHO} did not print a JSON object as its last line.")
    return Row(ram, told)


def heading() -> str:
    upper = " ".join(f"{above:>{width}}" for width, above, _ in COLUMNS)
    lower = " ".join(f"{below:>{width}}" for width, _, below in COLUMNS)
    return f"{upper.rstrip()}\n{lower} fingerprint\n"


def line(row: Row, width: int) -> str:
    """The row in the table, which is `width` characters wide; a sentence is broken into lines under its budget."""
    if row.error:
        first = COLUMNS[0][0]
        granted = "auto" if row.ram is None else size(row.ram)
        lines = textwrap.wrap(row.error, width - first - 1, break_long_words=False, break_on_hyphens=False)
        return "".join(f"{before:>{first}} {text}\n" for before, text in zip_longest([granted], lines, fillvalue=""))
    told = row.told
    cells = (
        size(told["ram"]),
        size(resident(told)),
        size(told["read_per_token"]),
        f"{told['decode_short_tok_s']:.1f}",
        f"{told['prefill_tok_s']:.1f}",
        _share(told["stall_share"]),
        _share(told["hit_rate"]),
        size(told["arena_peak"]),
        size(told["peak_memory_bytes"]),
    )
    figures = " ".join(f"{cell:>{width}}" for cell, (width, *_) in zip(cells, COLUMNS, strict=True))
    return f"{figures} {told['fingerprint'][:DIGITS]}\n"


def resident(told: Mapping[str, Any]) -> int:
    """Bytes of weights that are in memory, experts that were used lately among them."""
    memory: Mapping[str, int] = told["memory"]
    return memory["weights"] + memory["experts"]


def agreement(rows: Sequence[Row]) -> tuple[bool, str]:
    """Whether no two fingerprints differ, and a sentence that says so."""
    prints = [row.told["fingerprint"] for row in rows if not row.error]
    if len(set(prints)) > 1:
        return False, "The fingerprints differ: the answer depends on the memory, which is a fault."
    if len(prints) > 1:
        return True, "All fingerprints agree."
    return True, "There are no two fingerprints to compare."


def size(nbytes: int) -> str:
    """Three digits, in at most seven characters up to petabytes: 98362432 → "98.4 MB"."""
    value, unit = float(nbytes), "B"
    for larger in UNITS:
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{nbytes} B" if unit == "B" else f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def _share(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f} %"
