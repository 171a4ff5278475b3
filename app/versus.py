"""Our speed beside that of another program: both measured in turn, so that a drifting machine favours neither.

The peer is any command that prints, as its last line, one JSON object with `prefill_tok_s`, `decode_short_tok_s` and
`decode_long_tok_s`. Ours is `millstream bench --json`, in a process as fresh as the peer's.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app import child
from app.child import Command, Ended
from engine.errors import MillstreamError, SettingsError

SHARES = {
    "decode_short_tok_s": "decode_short_bandwidth_share",
    "decode_long_tok_s": "decode_long_bandwidth_share",
    "prefill_tok_s": "prefill_multiply_add_share",
}
"""What both sides tell, in tokens a second, and under which name ours tells its share of the machine's floor."""

PEER = "The peer's command"
OURS = "Our own measurement"

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Round:
    """What both sides told when one ran after the other."""

    ours: Figures
    peer: Figures


@dataclass(frozen=True)
class Compared:
    """One figure: the medians of both sides in tokens a second, of our share of the floor, and of ours over the peer's.

    `ratios` has those of all rounds, in their order. `share` is `None` where the floor was not to be measured.
    """

    ours: float
    peer: float
    ratio: float
    ratios: tuple[float, ...]
    share: float | None


@dataclass(frozen=True)
class Comparison:
    """What all rounds amount to. The floors, bytes and multiply-adds a second, are medians too."""

    rounds: int
    decode_short_tok_s: Compared
    decode_long_tok_s: Compared
    prefill_tok_s: Compared
    read_bandwidth: float | None
    multiply_add_rate: float | None


def peer_command(text: str, model: Path) -> Command:
    """The command that a person wrote, with the path in the place of `{model}`. Raises SettingsError for none."""
    if sys.platform == "win32":
        command: Command = text.replace("{model}", subprocess.list2cmdline([str(model)])).strip()
    else:
        try:
            command = [word.replace("{model}", str(model)) for word in shlex.split(text)]
        except ValueError as error:
            raise SettingsError(f"{PEER} has a quotation that does not end: {text}") from error
    if not command:
        raise SettingsError(f"{PEER} is empty: name the program that measures the peer, and its arguments.")
    return command


def compare(
    ours: Command, peer: Command, *, rounds: int, limit: float, progress: Callable[[str, int], None] | None = None
) -> list[Round]:
    """Run both `rounds` times; the peer begins the first round, ours the second, and so on.

    `progress` is told which of the two starts, and how many have run. Raises MillstreamError where one of them does
    not start, fails, runs for more than `limit` seconds, or does not print what it has to. A command that has not
    ended when this raises, Ctrl+C included, is ended with all that it started.
    """
    commands = {PEER: peer, OURS: ours}
    made: list[Round] = []
    for number in range(rounds):
        figures: dict[str, Figures] = {}
        for who in (PEER, OURS) if number % 2 == 0 else (OURS, PEER):
            if progress is not None:
                progress(who, 2 * number + len(figures))
            figures[who] = _figures(who, child.run(who, commands[who], limit))
        made.append(Round(figures[OURS], figures[PEER]))
    return made


def summary(rounds: Sequence[Round]) -> Comparison:
    """Medians over at least one round."""
    short, long, prefill = (_compared(rounds, field, share) for field, share in SHARES.items())
    reads, work = (_median(rounds, floor) for floor in ("read_bandwidth", "multiply_add_rate"))
    return Comparison(len(rounds), short, long, prefill, reads, work)


def _compared(rounds: Sequence[Round], field: str, share: str) -> Compared:
    ratios = [each.ours[field] / each.peer[field] for each in rounds]
    return Compared(
        ours=statistics.median(each.ours[field] for each in rounds),
        peer=statistics.median(each.peer[field] for each in rounds),
        ratio=round(statistics.median(ratios), 3),
        ratios=tuple(round(ratio, 3) for ratio in ratios),
        share=_median(rounds, share),
    )


def _median(rounds: Sequence[Round], name: str) -> float | None:
    told = [each.ours[name] for each in rounds if name in each.ours]
    return statistics.median(told) if told else None


def _figures(who: str, ended: Ended) -> Figures:
    """The numbers of the JSON object that was printed. Raises MillstreamError where the command failed, or one of the
    speeds is none."""
    if ended.status:
        raise MillstreamError(f"{who} {ended.fault}")
    told = ended.told()
    if told is None:
        raise MillstreamError(f"{who} did not print a JSON object as its last line; it needs {', '.join(SHARES)}.")
    for field in SHARES:
        if field not in told:
            raise MillstreamError(f"{who} printed a JSON object without {field}.")
        if not (_is_number(told[field]) and told[field] > 0):
            value = json.dumps(told[field])[:40]
            raise MillstreamError(f"{who} printed {value} as {field}, which has to be a number above zero.")
    return {name: float(value) for name, value in told.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    """Whether JSON gave a finite number, small enough to divide by."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and value == value
