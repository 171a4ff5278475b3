"""What `millstream plan` foretells against what `millstream bench` measures, for model files under budgets.

    python -m bench.forecast starter some.Q8_0.gguf mixture.Q4_K_M.gguf --ram auto,256MB --rounds 5

Each round, for each file and budget: first `plan --remeasure` in a process of its own, then `bench` in another, both
with the same context, so that what else the machine does meets both alike. The table gives foretold over measured
speed, the median of the rounds and all of them, for decoding at short context and for prefill. The aim is a median
within 25 % of 1 on three files, resident and streamed: run it on a machine that does nothing else. A budget under which
a file stays in memory is told as resident, any other one as streamed. The exit code is 1 where a median misses the aim.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app import child
from app.console import find_model
from engine import MillstreamError
from engine.checks import check_count

AIM: Final = 0.25
HEADER: Final = (
    "| file | memory | | decode, foretold / measured | prefill, foretold / measured |\n|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Round:
    """Foretold over measured."""

    decode: float
    prefill: float
    streams: bool


def once(path: Path, options: Sequence[str], sizes: Sequence[str], limit: float) -> Round:
    """One round. `sizes` are the options of `bench` alone. Raises MillstreamError where a process fails."""
    foretold = _told("plan", path, [*options, "--remeasure"], limit)
    measured = _told("bench", path, [*options, *sizes], limit)
    placed = foretold["placed"]
    assert isinstance(placed, list)
    return Round(
        decode=_number(foretold, "tok_s") / _number(measured, "decode_short_tok_s"),
        prefill=_number(foretold, "prefill_tok_s") / _number(measured, "prefill_tok_s"),
        streams=any(each["tier"] == "disk" for each in placed),
    )


def row(name: str, ram: str, rounds: Sequence[Round]) -> str:
    """One line of the table."""
    how = "streamed" if any(each.streams for each in rounds) else "resident"
    cells = (_cell([getattr(each, figure) for each in rounds]) for figure in ("decode", "prefill"))
    return " | ".join((f"| {name.replace('|', chr(92) + '|')}", ram, how, *cells)) + " |"


def missed(rounds: Sequence[Round]) -> bool:
    """Whether a median is further from 1 than aimed at."""
    figures = ([each.decode for each in rounds], [each.prefill for each in rounds])
    return any(abs(statistics.median(figure) - 1) > AIM for figure in figures)


def _cell(ratios: Sequence[float]) -> str:
    each = " ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{statistics.median(ratios):.2f} ({each})"


def _told(command: str, path: Path, options: Sequence[str], limit: float) -> dict[str, object]:
    words = child.our_command(path, options)
    assert isinstance(words, list)
    ended = child.run(command, [command if word == "bench" else word for word in words], limit)
    told = ended.told()
    if ended.status or told is None:
        raise MillstreamError(f"{command} of {path.name} {ended.fault}.")
    return told


def _number(told: dict[str, object], key: str) -> float:
    value = told[key]
    if not isinstance(value, float | int) or value <= 0:
        raise MillstreamError(f"There is no {key}: too little memory is free to measure the kernels, or the disk.")
    return float(value)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a file, a name in the library, or starter")
    parser.add_argument("--ram", default="auto", metavar="SIZE,…", help="budgets, as of `millstream bench` (auto)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--limit", type=int, default=3600, help="seconds that one process may take")
    arguments = parser.parse_args(argv)
    sizes = ["--prompt-tokens", str(arguments.prompt_tokens), "--tokens", str(arguments.tokens)]
    common = ["--context", str(max(arguments.prompt_tokens + arguments.tokens, 64))]
    if arguments.threads is not None:
        common += ["--threads", str(arguments.threads)]
    wrong = False
    try:
        for name in ("rounds", "prompt_tokens", "tokens", "limit"):
            check_count(f"--{name.replace('_', '-')}", getattr(arguments, name))
        paths = [find_model(model).absolute() for model in arguments.models]
        print(HEADER, flush=True)
        for path in paths:
            for ram in arguments.ram.split(","):
                options = [*common, "--ram", ram]
                rounds = [once(path, options, sizes, arguments.limit) for _ in range(arguments.rounds)]
                wrong = wrong or missed(rounds)
                print(row(path.name, ram, rounds), flush=True)
    except MillstreamError as error:
        raise SystemExit(f"bench.forecast: {error}") from error
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
