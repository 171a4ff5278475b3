"""Our speed beside that of another program: both measured in turn, so that a drifting machine favours neither.

The peer is any command that prints, as its last line, one JSON object with `prefill_tok_s`, `decode_short_tok_s` and
`decode_long_tok_s`. Ours is `millstream bench --json`, in a process as fresh as the peer's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from engine.errors import MillstreamError, SettingsError, StorageError

SHARES = {
    "decode_short_tok_s": "decode_short_bandwidth_share",
    "decode_long_tok_s": "decode_long_bandwidth_share",
    "prefill_tok_s": "prefill_multiply_add_share",
}
"""What both sides tell, in tokens a second, and under which name ours tells its share of the machine's floor."""

TAIL = 1 << 16
"""Bytes of a command's output that are looked at, from its end."""
GRACE = 2.0
"""Seconds in which a command may end by itself once it is told to."""

PEER = "The peer's command"
OURS = "Our own measurement"

Command = str | list[str]
"""As `subprocess.Popen` takes it: a command line on Windows, its words elsewhere."""
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


def our_command(model: Path, options: Sequence[str]) -> Command:
    """`millstream bench` by this interpreter, from wherever this program was loaded."""
    start = f"import sys; sys.path[0] = {str(Path(__file__).resolve().parents[1])!r}; from app.cli import main"
    return [sys.executable, "-c", f"{start}; sys.exit(main())", "bench", str(model), *options, "--json"]


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
            figures[who] = _read_figures(who, _run(who, commands[who], limit))
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


def _run(who: str, command: Command, limit: float) -> str:
    """The end of what the command prints. Its input is empty, and what it complains of is kept for our own sentence."""
    with contextlib.ExitStack() as files:
        try:
            out, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        except OSError as error:
            raise StorageError(f"There is no room for temporary files: {error.strerror}.") from error
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        except OSError as error:
            program = command if isinstance(command, str) else command[0]
            raise MillstreamError(f"{who} does not start: {program}: {error.strerror}.") from error
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired as error:
            raise MillstreamError(
                f"{who} was stopped after {limit:g} seconds without an end; --limit allows it more."
            ) from error
        finally:
            _stop(process)
        if status == 0:
            return _tail(out)
        said = (_tail(errors).strip().splitlines() or ["it gave no reason"])[-1].strip()[:300]
        ending = f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"
        raise MillstreamError(f"{who} {ending}: {said.removeprefix('millstream: ')}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of a command: the process and all that it started."""
    if process.poll() is not None:
        return
    try:
        leader = psutil.Process(process.pid)
        running = [*leader.children(recursive=True), leader]
    except psutil.Error:
        running = []
    try:
        _each(running, psutil.Process.terminate)
        psutil.wait_procs(running, GRACE)
    finally:  # also where a person presses Ctrl+C again
        _each(running, psutil.Process.kill)
        process.kill()
        process.wait()


def _each(processes: Sequence[psutil.Process], end: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            end(process)


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    return file.read().decode("utf-8", errors="replace")


def _read_figures(who: str, text: str) -> Figures:
    """The numbers of the JSON object in the last line. Raises MillstreamError where one of the speeds is none."""
    try:
        told = json.loads((text.strip().splitlines() or [""])[-1])
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
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
