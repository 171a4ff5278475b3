"""What this machine gives: memory that is free, and how fast a model comes from its drive.

A drive is measured once, by reading blocks of the model's own file past the system's cache, and the figures are kept
in a file that the caller names.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from engine.address_space import limit, raise_it, room
from engine.buffers import LARGE_PAGE, U8, mapped
from engine.cancel import Cancel, patiently
from engine.cgroups import memory_limit, memory_room
from engine.errors import BudgetError, MillstreamError, ModelFileError
from engine.memory.figures import LARGEST_BLOCK, MOST_THREADS, Drive, Speeds, keep, load, now
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile

ROOT: Final = Path("/")
SECONDS: Final = 0.15
"""How long each number of threads and each size of blocks is tried."""
THREADS: Final = tuple(1 << power for power in range(MOST_THREADS.bit_length()))
BLOCKS: Final = (LARGEST_BLOCK >> 2, LARGEST_BLOCK >> 1, LARGEST_BLOCK)
"""Bytes, 1 MiB … 4 MiB: in smaller blocks, what it takes to hand one over would show beside the reading."""
BLOCK: Final = 1 << 20
"""Bytes of the blocks by which threads are compared."""
MOST: Final = 32 << 20
"""Bytes of memory that all buffers together take at most."""
LEAST: Final = 16 << 20
"""The same where little is granted: less than what a plan allows for things that are not there yet."""
AS_GOOD, ENOUGH = 0.9, 0.9
"""Shares of the best rate that so many threads, and blocks of such a size, have to reach."""


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
    """Bytes of memory that the machine, the container that this process is in, or the process itself may have."""
    totals = psutil.virtual_memory().total, memory_limit(root), limit()
    return min(each for each in totals if each is not None)


def free_memory(root: Path = ROOT) -> int:
    """Bytes of memory that can be had without swapping, within the limits of the control groups under `root` and of
    this process (`engine.address_space`)."""
    rooms = psutil.virtual_memory().available, memory_room(root), room()
    return min(each for each in rooms if each is not None)


def real_memory() -> int:
    """Bytes of real memory that this process holds, its libraries included."""
    return int(psutil.Process().memory_info().rss)


def kept_drive(file: Path, measurements: Path | None) -> Drive | None:
    """The figures that are kept for the drive of a model's file, if there are any."""
    kept = load(measurements).drives.get(_device(file))
    return None if kept is None else kept.value


def measured_at(file: Path, threads: int, measurements: Path | None) -> int | None:
    """When the older was measured of what is kept for a file's drive and for so many threads, in seconds since 1970."""
    figures = load(measurements)
    kept = figures.drives.get(_device(file)), figures.speeds.get(threads)
    return min((each.when for each in kept if each is not None), default=None)


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
    if not remeasure and (known := load(measurements).drives.get(device)) is not None:
        return known.value
    drive = measure_drive(file, most=most, cancel=cancel)
    keep(measurements, lambda figures: figures.drives.update({device: now(drive)}))
    return drive


def kept_speeds(threads: int, measurements: Path | None) -> Speeds | None:
    """Those that are kept of the kernels for so many threads, if there are any."""
    kept = load(measurements).speeds.get(threads)
    return None if kept is None else kept.value


def speeds_of(
    threads: int, encodings: Collection[str], measurements: Path | None = None, *, remeasure: bool = False
) -> Speeds | None:
    """Those of the kernels with so many threads (`engine.memory.speeds`): measured for the encodings of which none are
    kept, which takes memory of its own meanwhile; `None` where that cannot be."""
    known = None if remeasure else kept_speeds(threads, measurements)
    missing = set(encodings) - set(() if known is None else known.encodings)
    if known is not None and not missing:
        return known
    from engine.memory.speeds import measure_speeds

    told = measure_speeds(missing, threads)
    if told is None:
        return known
    if known is not None:
        told = Speeds({**known.encodings, **told.encodings}, told.walk)
    keep(measurements, lambda figures: figures.speeds.update({threads: now(told)}))
    return told


def measure_drive(file: Path, seconds: float = SECONDS, cancel: Cancel | None = None, *, most: int = MOST) -> Drive:
    """Read random blocks of a file for so long with each number of threads, then in each size. Raises as `drive_of`."""
    most = min(max(most, LEAST), MOST)
    with patiently(lambda: _Reader(file), cancel) as reader:
        block = reader.fitting(BLOCK)
        each = max(block, LARGE_PAGE)
        by_threads = {n: timed(reader, n, block, seconds, cancel=cancel) for n in THREADS if n * each <= most}
        threads = fewest_as_good({n: rate.bandwidth for n, rate in by_threads.items()}, AS_GOOD)
        sizes = sorted({reader.fitting(size) for size in BLOCKS if threads * max(size, LARGE_PAGE) <= most})
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
    counts, failures = [0] * threads, list[MillstreamError]()
    changed, left = threading.Condition(), set(range(threads))

    def work(which: int) -> None:
        draws = random.Random(which)
        try:
            buffer = mapped(max(block, LARGE_PAGE))[:block]  # the memory that a model streams through
            while not (failures or cancel.is_set()) and (clock() < end or not counts[which]):
                reader.read(buffer, draws.randrange(reader.places(block)) * PAGE)
                counts[which] += 1
        except ModelFileError as error:
            failures.append(error)
        except (OSError, MemoryError):  # there is no memory for the mapping
            failures.append(_refused())
        with changed:
            left.remove(which)
            changed.notify_all()

    def wake() -> None:
        with changed:
            changed.notify_all()

    started = clock()
    for which in range(threads):
        try:
            threading.Thread(target=work, args=(which,), daemon=True).start()
        except RuntimeError:
            failures.append(_refused())
            with changed:
                left.difference_update(range(which, threads))
            break
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

    def read(self, into: U8, offset: int) -> None:
        """Fill the buffer with the bytes from `offset` on, or with those up to the file's end."""
        self._file.read_pages(into.data, offset, "", min(len(into), self._size - offset))


def _refused() -> BudgetError:
    return BudgetError(f"The system refused the memory to measure the disk with: {raise_it()}close other programs.")


def _device(file: Path) -> str:
    """What names the drive. Raises ModelFileError where there is no such file."""
    try:
        return str(file.stat().st_dev)
    except OSError as error:
        raise ModelFileError(f"Cannot open {file}: {error.strerror or error}.") from error
