"""What was measured of this machine, kept in a file from one start of the program to the next."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from engine.memory.raw_file import PAGE
from engine.small_file import read_small

T = TypeVar("T")

VERSION: Final = 3
MOST_BYTES: Final = 64 << 10
"""Of the file: more than ten times what a hundred drives take."""
MOST_THREADS: Final = 16
"""That read at once when a drive is measured."""
LARGEST_BLOCK: Final = 4 << 20
SLOWEST, FASTEST = 1e3, 1e15
"""Bytes, or multiply-adds, a second between which anything is."""


@dataclass(frozen=True)
class Drive:
    """`bandwidth` in bytes a second, of `threads` that read blocks of 1 MiB at once; `latency` of one small read in
    seconds; `block_bytes` is the smallest block that comes nearly as fast."""

    bandwidth: float
    latency: float
    threads: int
    block_bytes: int


@dataclass(frozen=True)
class Speed:
    """Of matrices of one encoding: bytes a second that one row of input passes over, and multiply-adds a second for a
    chunk of rows."""

    passed: float
    multiply_adds: float


@dataclass(frozen=True)
class Speeds:
    """Of the kernels, by encoding; and the seconds that each walk over matrices takes beside its bytes."""

    encodings: Mapping[str, Speed]
    walk: float

    def of(self, encoding: str) -> Speed:
        """That of an encoding; where it was not measured, that of the slowest."""
        known = self.encodings.get(encoding)
        return known or min(self.encodings.values(), key=lambda speed: speed.passed)

    @property
    def slowest(self) -> float:
        """Bytes a second."""
        return min(speed.passed for speed in self.encodings.values())


@dataclass(frozen=True)
class Dated(Generic[T]):
    """A figure, and when it was measured, in seconds since 1970."""

    value: T
    when: int


@dataclass(frozen=True)
class Figures:
    """Drives by device, the kernels' speeds by threads."""

    drives: dict[str, Dated[Drive]] = field(default_factory=dict)
    speeds: dict[int, Dated[Speeds]] = field(default_factory=dict)


def load(file: Path | None) -> Figures:
    """What can be understood of a file of figures; nothing of a damaged one, nor of what is no small file."""
    if file is None:
        return Figures()
    try:
        content = json.loads(read_small(file, MOST_BYTES))
        if content["version"] != VERSION:
            return Figures()
        return Figures(
            {str(device): _dated(told, _drive) for device, told in content["drives"].items()},
            {int(threads): _dated(told, _speeds) for threads, told in content["speeds"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return Figures()


def keep(file: Path | None, change: Callable[[Figures], None]) -> None:
    """Write the figures with a change, whole or not at all; not where the disk refuses."""
    if file is None:
        return
    figures = load(file)
    change(figures)
    content = {
        "version": VERSION,
        "drives": {device: {**asdict(kept.value), "when": kept.when} for device, kept in figures.drives.items()},
        "speeds": {threads: {**asdict(kept.value), "when": kept.when} for threads, kept in figures.speeds.items()},
    }
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with open(descriptor, "w", encoding="utf-8") as written:
                json.dump(content, written)
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def now(value: T) -> Dated[T]:
    """A figure that has just been measured."""
    return Dated(value, int(time.time()))


def _dated(told: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> Dated[T]:
    """Raises ValueError for a time before any computer's."""
    when = int(told["when"])
    if not 0 < when < 1 << 40:
        raise ValueError("nothing was measured then")
    return Dated(read(told), when)


def _rate(told: object) -> float:
    """Raises ValueError for one that nothing has."""
    if not isinstance(told, int | float) or isinstance(told, bool) or not SLOWEST < told < FASTEST:
        raise ValueError("nothing is as fast or as slow as that")
    return float(told)


def _speeds(told: Mapping[str, Any]) -> Speeds:
    """Raises ValueError or KeyError for figures that cannot be."""
    encodings = {
        str(name): Speed(_rate(speed["passed"]), _rate(speed["multiply_adds"]))
        for name, speed in told["encodings"].items()
    }
    walk = float(told["walk"])
    if not (encodings and 0 <= walk < 1):
        raise ValueError("no kernels have such figures")
    return Speeds(encodings, walk)


def _drive(told: Mapping[str, Any]) -> Drive:
    """Raises ValueError or KeyError for figures that cannot be."""
    latency, threads, block = float(told["latency"]), int(told["threads"]), int(told["block_bytes"])
    if not (0 < latency < 1e3 and 1 <= threads <= MOST_THREADS):
        raise ValueError("no drive has such figures")
    if not (PAGE <= block <= LARGEST_BLOCK and block % PAGE == 0):
        raise ValueError("no drive is read in such blocks")
    return Drive(_rate(told["bandwidth"]), latency, threads, block)
