"""How fast a model will answer: from where its weights are, what a pass does with them, and what the machine does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.memory.figures import Drive, Speeds
from engine.memory.planner import Item, Tiers, missed, read_of
from engine.memory.step import Step
from engine.memory.uses import Use

SERIAL: Final = 0.4
"""Share of the shorter of two kinds of work done at once that the longer one does not hide: a drive's copying and
computing share the memory's bandwidth. Measured (`bench.streaming`): where reads alone take 0.93 s of a step and
computing 0.25 s, the step takes 1.05 s, and reads whose bytes are only added up take 1.03 s."""
WINDOW: Final = 1e-4
"""Seconds of handing over one block that comes from disk, measured between 40 and 300 µs on a busy machine."""


LITTLE: Final = 0.02
"""Share of what decoding passes over below which the speed of an encoding does not show."""


@dataclass(frozen=True)
class Forecast:
    """Tokens a second of decoding and of prefill, and the bytes of its weights a second that decoding passes over where
    none come from disk."""

    tok_s: float
    prefill_tok_s: float
    computing: float


@dataclass(frozen=True)
class Flow:
    """What streams, and how: the items by tiers, the drive, what a block holds at most: bytes, and rows; and the bytes
    of the arena, which is as many blocks as can be on their way at once and the one that is computed with."""

    items: Sequence[Item]
    tiers: Tiers
    drive: Drive
    block_bytes: int
    arena: int
    block_rows: int | None = None

    @property
    def bandwidth(self) -> float:
        """Bytes a second that come from the drive: few small blocks at once are waited for one by one."""
        at_once = max(self.arena // self.block_bytes - 1, 1)
        each = self.drive.latency + self.block_bytes * self.drive.threads / self.drive.bandwidth
        return min(self.drive.bandwidth, at_once * self.block_bytes / each)

    def seconds(self, computing: float, uses: Iterable[Use], nbytes: float) -> float:
        """Of computing with weights of which so many bytes are read meanwhile: the longer of the two, and a share of
        the shorter."""
        windows = passed = 0.0
        for use in uses:
            passed += sum(use.nbytes)
            rows = max((weight.rows for weight in use.weights), default=0) * use.count
            windows += max(sum(use.nbytes) / self.block_bytes, rows / self.block_rows if self.block_rows else 0)
        computing += windows * nbytes / max(passed, 1) * WINDOW
        return together(computing, nbytes / self.bandwidth)


def together(computing: float, reading: float) -> float:
    """Seconds of two kinds of work done at once."""
    return max(computing, reading) + SERIAL * min(computing, reading)


def weighty(step: Step) -> frozenset[str]:
    """The encodings of the weights that decoding spends its time on."""
    nbytes: Counter[str] = Counter()
    for use in step.uses:
        for weight, passed in zip(use.weights, use.nbytes, strict=True):
            nbytes[weight.encoding] += passed
    return frozenset(encoding for encoding, passed in nbytes.items() if passed >= LITTLE * nbytes.total())


def forecast(step: Step, flow: Flow | None, speeds: Speeds, *, chunk: int, cached: int) -> Forecast:
    """Of a model whose weights are all in memory where `flow` is `None`. A step of decoding reads `cached` bytes of
    keys and values; a prompt is read by `chunk` tokens.

    Dense weights are read while others are computed with. Experts are known only when it is their turn, so that their
    reading hides behind their own computing alone. Each is thought to be chosen as often as the others: where a text
    comes back to the same ones, it is faster.
    """
    dense, mixed = _parted(step.uses)
    body, _ = _parted(step.body)
    computing = [_passing(dense, speeds) + cached / speeds.slowest, _passing(mixed, speeds)]
    # Of a chunk the last row alone goes through the head.
    chunked = [_multiplying(body, speeds, chunk) + _passing(step.head, speeds), _multiplying(mixed, speeds, chunk)]
    if flow is None:
        decode, prefill = sum(computing), sum(chunked)
    else:
        read = read_of(flow.items, flow.tiers, experts=False)
        routed = read_of(flow.items, flow.tiers, experts=True) * missed(flow.items, flow.tiers)
        decode = flow.seconds(computing[0], dense, read) + flow.seconds(computing[1], mixed, routed)
        prefill = flow.seconds(chunked[0], dense, read)
        prefill += flow.seconds(chunked[1], mixed, routed * _distinct(mixed, chunk))
    passed = sum(sum(use.nbytes) for use in step.uses) + cached
    return Forecast(1 / decode, chunk / prefill, passed / sum(computing))


def _parted(uses: Iterable[Use]) -> tuple[list[Use], list[Use]]:
    parted: tuple[list[Use], list[Use]] = ([], [])
    for use in uses:
        parted[use.way == "experts"].append(use)
    return parted


def _passing(uses: Iterable[Use], speeds: Speeds) -> float:
    """Seconds of one row."""
    seconds = 0.0
    for use in uses:
        seconds += speeds.walk
        for weight, nbytes in zip(use.weights, use.nbytes, strict=True):
            seconds += nbytes / speeds.of(weight.encoding).passed
    return seconds


def _multiplying(uses: Iterable[Use], speeds: Speeds, chunk: int) -> float:
    """Seconds of a chunk of rows."""
    seconds = 0.0
    for use in uses:
        seconds += speeds.walk
        for weight, count in zip(use.weights, use.multiply_adds, strict=True):
            seconds += chunk * count / speeds.of(weight.encoding).multiply_adds
    return seconds


def _distinct(uses: Iterable[Use], chunk: int) -> float:
    """How many times the experts of one token a chunk reads: where each row chooses n of E, E · (1 − (1 − n/E)^rows)
    different ones are chosen in all."""
    for use in uses:
        experts, chosen = use.weights[0].matrices, use.count
        return experts * (1 - (1 - chosen / experts) ** chunk) / chosen
    return 1.0
