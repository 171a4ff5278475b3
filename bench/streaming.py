"""Decoding from disk beside plain reads of the very same bytes, in turn, both cold.

    python -m bench.streaming MODEL.gguf --ram 256MB
    python -m bench.streaming MODEL.gguf --ram 256MB --io-threads 2,4,8 --block-rows auto,64,256

Each round times (a) the floor: another process, without an engine, reads what the engine read for its last tokens, the
same ranges in the same order by as many threads, past the system's cache, into as much memory as the engine's arena;
and (b) decoding itself, without loading. It goes a, b, b, a, because a disk may give more after it has rested. The goal
is a ratio (a)/(b) of 0.90 or more, and so a stall beyond the floor under 10 % of the step. Beside it stands what the
reads take where every byte is used once, added to a sum: copying by the drive and use by the processor share the
memory's bandwidth. With `--resident` decoding is timed with all weights in memory, too: what computing alone takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from app import options
from app.console import find_model
from bench.cached_pages import CachedPages, forget
from engine import Budgets, Engine, Measurement, MillstreamError, Plan

PLAIN = Path(__file__).with_name("plain_reads.py")
PROMPT_TOKENS = 4
MB = 10**6


@dataclass(frozen=True)
class Round:
    """Of one token: bytes read, the floor's seconds for them, as many where all is used once, and decoding's. `rate` is
    the floor's, bytes a second."""

    read: float
    floor: float
    used: float
    step: float
    rate: float
    block: float
    cached_before: int
    cached_after: int

    @property
    def ratio(self) -> float:
        return self.floor / self.step

    @property
    def used_ratio(self) -> float:
        return self.used / self.step


@dataclass(frozen=True)
class Floor:
    """Seconds for what a token reads, as many where all is used once, and the mean bytes of a read."""

    seconds: float
    used: float
    block: float


class Reads:
    """Every read of a file through `os.preadv` while this records: offsets and bytes, in the order of their ends."""

    def __init__(self, path: Path) -> None:
        self._identity = _identity(os.stat(path))
        self._known: dict[int, bool] = {}
        self.made: list[tuple[int, int]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        read = os.preadv

        def preadv(file: int, buffers: Sequence[Any], offset: int, *flags: int) -> int:
            count = read(file, buffers, offset, *flags)
            if file not in self._known:
                self._known[file] = _identity(os.fstat(file)) == self._identity
            if self._known[file] and count:
                self.made.append((offset, count))
            return count

        os.preadv = preadv
        try:
            yield
        finally:
            os.preadv = read

    def last(self, nbytes: float) -> list[tuple[int, int]]:
        """As many of the last reads as make up so many bytes."""
        taken, total = [], 0
        for offset, count in reversed(self.made):
            if total >= nbytes:
                break
            taken.append((offset, count))
            total += count
        return taken[::-1]


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def floor_seconds(
    path: Path, reads: Sequence[tuple[int, int]], threads: int, room: int = 0, *, used: bool = False
) -> float:
    """(a): these reads by a program of their own, cold, into so many bytes of memory."""
    forget(path)
    job = {"path": str(path), "reads": reads, "threads": threads, "direct": True, "room": room, "used": used}
    done = subprocess.run([sys.executable, str(PLAIN)], input=json.dumps(job), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"plain reads failed: {done.stderr.strip()}")
    return float(done.stdout)


def decode(engine: Engine, path: Path, tokens: int) -> tuple[Measurement, Reads]:
    """(b): so many steps at short context, cold."""
    forget(path)
    reads = Reads(path)
    with reads.recording():
        measured = engine.measure(PROMPT_TOKENS, tokens)
    return measured, reads


def rounds(engine: Engine, path: Path, tokens: int, count: int) -> Iterator[Round]:
    """The two in turn."""
    measured, reads = decode(engine, path, tokens)  # what the first floor reads; nothing of it is timed
    with CachedPages(path) as pages:
        for _ in range(count):
            first = floor(path, reads, measured, tokens, engine.plan)
            forget(path)
            before = pages.nbytes()
            steps, read = [], []
            for _ in range(2):
                measured, reads = decode(engine, path, tokens)
                steps.append(1 / measured.decode_short_tok_s)
                read.append(measured.read_per_token)
            after = pages.nbytes()
            second = floor(path, reads, measured, tokens, engine.plan)
            floors = statistics.mean((first.seconds, second.seconds))
            used = statistics.mean((first.used, second.used))
            bytes_a_token, step = statistics.mean(read), statistics.mean(steps)
            yield Round(bytes_a_token, floors, used, step, bytes_a_token / floors, second.block, before, after)


def floor(path: Path, reads: Reads, measured: Measurement, tokens: int, plan: Plan) -> Floor:
    """(a), for the last tokens' reads."""
    last = reads.last(measured.read_per_token * tokens)
    if not last:
        raise SystemExit("Nothing is read a token: grant less, so that the model streams.")
    total = sum(nbytes for _, nbytes in last)
    plain, used = (floor_seconds(path, last, plan.io_threads, plan.arena, used=used) for used in (False, True))
    share = measured.read_per_token / total
    return Floor(plain * share, used * share, total / len(last))


def resident_step(path: Path, budgets: Budgets, tokens: int) -> float:
    """Seconds a token with all weights in memory."""
    enough = path.stat().st_size + 2000 * MB
    with Engine.load(path, Budgets(threads=budgets.threads, context=budgets.context, ram=enough)) as engine:
        return 1 / engine.measure(PROMPT_TOKENS, tokens).decode_short_tok_s


def report(made: Sequence[Round], stall_share: float | None) -> dict[str, float | None]:
    def median(name: str) -> float:
        return statistics.median(getattr(each, name) for each in made)

    ratio = median("ratio")
    return {
        "read_per_token_mb": round(median("read") / MB, 3),
        "mean_read_kb": round(median("block") / 1000, 1),
        "floor_gb_s": round(median("rate") / 1e9, 3),
        "floor_s": round(median("floor"), 4),
        "step_s": round(median("step"), 4),
        "ratio": round(ratio, 3),
        "used_ratio": round(median("used_ratio"), 3),
        "beyond_floor": round(max(0.0, 1 - ratio), 3),
        "stall_share": stall_share and round(stall_share, 3),
        "cached_mb": round(max(each.cached_after for each in made) / MB, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a file, a name in the library, or starter")
    parser.add_argument("--ram", type=options.size, required=True, metavar="SIZE", help="as in 256MB or 1.5GB")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--io-threads", type=several, default=[None], help="one or several, as in auto,2,8")
    parser.add_argument("--block-rows", type=several, default=[None], help="one or several, as in auto,64,256")
    parser.add_argument("--resident", action="store_true", help="time decoding with all weights in memory, too")
    arguments = parser.parse_args()
    try:
        sweep(find_model(arguments.model), arguments)
    except MillstreamError as error:
        raise SystemExit(f"bench.streaming: {error}") from error


def sweep(path: Path, arguments: argparse.Namespace) -> None:
    """The rounds of each number of threads with each size of blocks."""
    for io_threads, block_rows in product(arguments.io_threads, arguments.block_rows):
        budgets = Budgets(
            threads=arguments.threads,
            context=arguments.context,
            ram=arguments.ram,
            io_threads=io_threads,
            block_rows=block_rows,
        )
        started = time.perf_counter()
        with Engine.load(path, budgets) as engine:
            threads = engine.plan.io_threads
            print(
                f"ram {budgets.ram / MB:.0f} MB, io threads {threads}, block rows {block_rows or 'auto'}, "
                f"loaded in {time.perf_counter() - started:.1f} s",
                flush=True,
            )
            made = []
            for each in rounds(engine, path, arguments.tokens, arguments.rounds):
                made.append(each)
                print(
                    f"  read {each.read / MB:.2f} MB in reads of {each.block / 1000:.0f} kB   floor {each.floor:.4f} s "
                    f"({each.rate / 1e9:.2f} GB/s)   used {each.used:.4f} s   step {each.step:.4f} s   "
                    f"ratio {each.ratio:.3f}   used {each.used_ratio:.3f}   "
                    f"file in cache {each.cached_before / MB:.1f} → {each.cached_after / MB:.1f} MB",
                    flush=True,
                )
            stall = engine.measure(PROMPT_TOKENS, arguments.tokens).stall_share
        told = report(made, stall)
        if arguments.resident:
            told["resident_step_s"] = round(resident_step(path, budgets, arguments.tokens), 4)
        print(json.dumps({"io_threads": threads, "block_rows": block_rows, **told}), flush=True)


def several(text: str) -> list[int | None]:
    return [None if word == "auto" else int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
