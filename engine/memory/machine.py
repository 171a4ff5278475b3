"""What this machine gives: memory that is free, and how fast a model comes from its drive.

A drive is measured once, by reading blocks of the model's own file past the system's cache, and the figures are kept
in a file that the caller names.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import psutil

from engine.cancel import Cancel, patiently
from engine.cgroups import memory_limit, memory_room
from engine.errors import ModelFileError
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile

ROOT: Final = Path("/")
SECONDS: Final = 0.15
"""How long each number of threads and each size of blocks is tried."""
THREADS: Final = (1, 2, 4, 8, 16)
BLOCKS: Final = tuple(1 << power for power in range(20, 23))
"""Bytes, 1 MiB … 4 MiB: in smaller blocks, what it takes to hand one over would show beside the reading."""
BLOCK: Final = 1 << 20
"""Bytes of the blocks by which threads are compared."""
MOST: Final = 32 << 20
"""Bytes of memory that all buffers together take at most."""
LEAST: Final = 16 << 20
"""The same where little is granted: less than what a plan allows for things that are not there yet."""
AS_GOOD, ENOUGH = 0.9, 0.9
"""Shares of the best rate that so many threads, and blocks of such a size, have to reach."""
VERSION: Final = 1


@dataclass(frozen=True)
class Drive:
    """`bandwidth` in bytes a second, of `threads` that read blocks of 1 MiB at once; `latency` of one small read in
    seconds; `block_bytes` is the smallest block that comes nearly as fast."""

    bandwidth: float
    latency: float
    threads: int
    block_bytes: int


@dataclass(frozen=True)
class Rate:
    """So many bytes, in blocks, in so many seconds."""

    nbytes: int
    blocks: int
    seconds: float

    @property
    def bandwidth(self) -> float:
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0


def total_memory(root: Path = ROOT) -> int:
    """Bytes of memory that the machine, or the container that this process is in, has."""
    total, limit = psutil.virtual_memory().total, memory_limit(root)
    return total if limit is None else min(total, limit)


def free_memory(root: Path = ROOT) -> int:
    """Bytes of memory that can be had without swapping, within the limits of the control groups under `root`."""
    free, room = psutil.virtual_memory().available, memory_room(root)
    return free if room is None else min(free, room)


def real_memory() -> int:
    """Bytes of real memory that this process holds, its libraries included."""
    return int(psutil.Process().memory_info().rss)


def kept_drive(file: Path, measurements: Path | None) -> Drive | None:
    """The figures that are kept for the drive of a model's file, if there are any."""
    return _kept(measurements).drives.get(_device(file))


def drive_of(
    file: Path,
    measurements: Path | None = None,
    *,
    remeasure: bool = False,
    most: int = MOST,
    cancel: Cancel | None = None,
) -> Drive:
    """The figures of the drive that a model's file is on, measured in about two seconds where none are kept, with about
    `most` bytes of memory.

    A file of figures that is damaged, or cannot be written, is as if there were none. Raises ModelFileError where the
    model's file cannot be read, and `Cancelled` where that comes first, even while a read hangs.
    """
    device = patiently(lambda: _device(file), cancel)
    if not remeasure and (known := _kept(measurements).drives.get(device)) is not None:
        return known
    drive = measure_drive(file, most=most, cancel=cancel)
    _keep(measurements, lambda figures: figures.drives.update({device: drive}))
    return drive


def kept_memory(threads: int, measurements: Path | None) -> float | None:
    """The bytes a second that are kept for so many threads, if there are any."""
    return _kept(measurements).memory.get(threads)


def memory_of(threads: int, measurements: Path | None = None, *, remeasure: bool = False) -> float | None:
    """Bytes a second that so many threads read from memory together at most (`engine.memory.floors`), measured where
    none are kept; `None` where that cannot be. Takes memory of its own meanwhile."""
    if not remeasure and (known := kept_memory(threads, measurements)) is not None:
        return known
    from engine.kernels.native import NativeOps
    from engine.memory.floors import measure_floors

    with contextlib.closing(NativeOps(threads)) as ops:
        floors = measure_floors(ops)
    bandwidth = None if floors is None else floors.read_bandwidth
    if bandwidth is not None:
        _keep(measurements, lambda figures: figures.memory.update({threads: bandwidth}))
    return bandwidth


def measure_drive(file: Path, seconds: float = SECONDS, cancel: Cancel | None = None, *, most: int = MOST) -> Drive:
    """Read random blocks of a file for so long with each number of threads, then in each size. Raises as `drive_of`."""
    most = min(max(most, LEAST), MOST)
    with patiently(lambda: _Reader(file), cancel) as reader:
        block = reader.fitting(BLOCK)
        by_threads = {n: timed(reader, n, block, seconds, cancel=cancel) for n in THREADS if n * block <= most}
        threads = fewest_as_good({n: rate.bandwidth for n, rate in by_threads.items()}, AS_GOOD)
        sizes = sorted({reader.fitting(size) for size in BLOCKS if threads * size <= most})
        by_size = {size: timed(reader, threads, size, seconds, cancel=cancel).bandwidth for size in sizes}
        small = timed(reader, 1, reader.fitting(PAGE), seconds, cancel=cancel)
        return Drive(
            bandwidth=by_threads[threads].bandwidth,
            latency=small.seconds / max(small.blocks, 1),
            threads=threads,
            block_bytes=fewest_as_good(by_size, ENOUGH),
        )


def fewest_as_good(rates: Mapping[int, float], share: float) -> int:
    """The smallest key whose rate is at least this share of the best."""
    best = max(rates.values())
    return min(key for key, rate in rates.items() if rate >= share * best)


def timed(
    reader: _Reader,
    threads: int,
    block: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    cancel: Cancel | None = None,
) -> Rate:
    """Read blocks with so many threads until the time is up. Raises what the first read that failed raised, and
    `Cancelled`, which leaves reads that hang to themselves."""
    cancel = cancel or Cancel()
    end = clock() + seconds
    counts, failures = [0] * threads, list[ModelFileError]()
    changed, left = threading.Condition(), set(range(threads))

    def work(which: int) -> None:
        draws = random.Random(which)
        # A mapping is aligned to pages, as direct reads ask for, and is given back to the system when it goes.
        with mmap.mmap(-1, block) as buffer:
            try:
                while not (failures or cancel.is_set()) and (clock() < end or not counts[which]):
                    reader.read(buffer, draws.randrange(reader.places(block)) * PAGE)
                    counts[which] += 1
            except ModelFileError as error:
                failures.append(error)
        with changed:
            left.remove(which)
            changed.notify_all()

    def wake() -> None:
        with changed:
            changed.notify_all()

    started = clock()
    for which in range(threads):
        threading.Thread(target=work, args=(which,), daemon=True).start()
    with cancel.on_set(wake), changed:
        changed.wait_for(lambda: not left or cancel.is_set())
    cancel.check()
    if failures:
        raise failures[0]
    return Rate(sum(counts) * block, sum(counts), clock() - started)


class _Reader:
    """A model's file, read in whole blocks past the system's cache."""

    def __init__(self, file: Path) -> None:
        """Raises ModelFileError where it cannot be opened."""
        self._file = ModelFile(file, keep_cached=False)
        self._size = file.stat().st_size

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fitting(self, block: int) -> int:
        """The largest block that is no larger than this one and than the file, in whole aligned pages."""
        return max(min(block, self._size // PAGE * PAGE), PAGE)

    def places(self, block: int) -> int:
        """How many aligned offsets such a block can be read at."""
        return max((self._size - block) // PAGE + 1, 1)

    def read(self, into: mmap.mmap, offset: int) -> None:
        """Fill the buffer with the bytes from `offset` on, or with those up to the file's end."""
        with memoryview(into) as view:
            self._file.read_pages(view, offset, "of any name", min(len(into), self._size - offset))


def _device(file: Path) -> str:
    """What names the drive. Raises ModelFileError where there is no such file."""
    try:
        return str(file.stat().st_dev)
    except OSError as error:
        raise ModelFileError(f"Cannot open {file}: {error.strerror or error}.") from error


@dataclass(frozen=True)
class _Figures:
    """What a file of figures holds: drives by device, memory by threads."""

    drives: dict[str, Drive] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)


def _kept(measurements: Path | None) -> _Figures:
    """What can be understood of a file of figures; nothing of a damaged one."""
    if measurements is None:
        return _Figures()
    try:
        content = json.loads(measurements.read_text("utf-8"))
        if content["version"] != VERSION:
            return _Figures()
        return _Figures(
            {str(device): _drive(figures) for device, figures in content["drives"].items()},
            {int(threads): _rate(bandwidth) for threads, bandwidth in content["memory"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return _Figures()


def _rate(bandwidth: float) -> float:
    """Raises ValueError for one that nothing has."""
    if not 0 < float(bandwidth) < 1e15:
        raise ValueError("nothing is as fast as that")
    return float(bandwidth)


def _drive(figures: Mapping[str, float]) -> Drive:
    """Raises ValueError or KeyError for figures that cannot be."""
    bandwidth, latency = _rate(figures["bandwidth"]), float(figures["latency"])
    threads, block = int(figures["threads"]), int(figures["block_bytes"])
    if not (0 < latency < 1e3 and 1 <= threads <= THREADS[-1]):
        raise ValueError("no drive has such figures")
    if not (PAGE <= block <= BLOCKS[-1] and block % PAGE == 0):
        raise ValueError("no drive is read in such blocks")
    return Drive(bandwidth, latency, threads, block)


def _keep(measurements: Path | None, change: Callable[[_Figures], None]) -> None:
    """Write the figures with a change, whole or not at all; not where the disk refuses."""
    if measurements is None:
        return
    figures = _kept(measurements)
    change(figures)
    drives = {device: asdict(drive) for device, drive in figures.drives.items()}
    content = {"version": VERSION, "drives": drives, "memory": figures.memory}
    with contextlib.suppress(OSError):
        measurements.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=measurements.parent, prefix=measurements.name)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(name, measurements)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
