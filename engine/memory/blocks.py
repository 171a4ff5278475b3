"""What is read at once: units of weights that are walked together, and where their bytes come to lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from engine.buffers import U8
from engine.memory.arena import Lease, whole_pages
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile, Pending, ReadPool
from engine.memory.rows import Run, rows_together


def most_room(nbytes: int) -> int:
    """The most room that `nbytes` which follow each other in a file can need, wherever they lie: whole pages."""
    return whole_pages(nbytes) + PAGE


@dataclass(slots=True)
class _Extent:
    """Bytes `low … high - 1` of a file, whole pages, at `place`. Those before `read_from` are there already, those from
    `needed` on may be missing."""

    file: ModelFile
    low: int
    read_from: int
    high: int
    needed: int
    place: int
    tensor: str


class Layout:
    """Which pages of which files lie where in one piece of memory. Pages are only read once, and those that follow each
    other in a file are read together."""

    __slots__ = ("_extents", "_sealed", "nbytes")

    def __init__(self) -> None:
        self._extents: list[_Extent] = []
        self._sealed = False
        self.nbytes = 0

    def seal(self) -> None:
        """What is added from now on shares no page with what was added before."""
        self._sealed = True

    def add(self, file: ModelFile, offset: int, nbytes: int, tensor: str, carried: bool = False) -> tuple[int, bool]:
        """Where these bytes come to lie, behind all that was added before: their place, and whether the page that they
        begin in must be `carried` there."""
        low, needed = offset // PAGE * PAGE, offset + nbytes
        high = whole_pages(needed)
        last = self._extents[-1] if self._extents and not self._sealed else None
        self._sealed = False
        if last is not None and last.file is file and last.low <= low <= last.high:
            place = last.place + offset - last.low
            last.needed = max(last.needed, needed)
            if high > last.high:
                self.nbytes += high - last.high
                last.high = high
            return place, False
        place = self.nbytes
        self._extents.append(_Extent(file, low, low + PAGE if carried else low, high, needed, place, tensor))
        self.nbytes += high - low
        return place + offset - low, carried

    def read(self, pool: ReadPool, memory: U8, most: int, *, urgent: bool = False) -> list[Pending]:
        """Begin to read into memory, uint8 [nbytes] on a page's boundary, at most about `most` bytes at once."""
        if memory.size < self.nbytes:
            raise ValueError(f"{self.nbytes} bytes do not fit into {memory.size}")
        view, reads = memory.data, []
        for extent in self._extents:
            length = extent.high - extent.read_from
            if length <= 0:
                continue
            size = whole_pages(-(-length // max(round(length / most), 1)))
            for start in range(extent.read_from, extent.high, size):
                stop = min(start + size, extent.high)
                at = extent.place + start - extent.low
                least = min(stop, extent.needed) - start
                into = view[at : at + stop - start]
                reads.append(pool.submit(extent.file, start, into, extent.tensor, least, urgent=urgent))
        return reads


class Block:
    """Units `first … stop - 1` of runs that are walked together; with a `room` of its own, all units of each run.

    It is planned and begun where there is room for it; when it is its turn, it takes over what it shares with the block
    before it, and is finished when its reads are done.
    """

    __slots__ = (
        "_before",
        "_carries",
        "_gathers",
        "_layout",
        "_places",
        "_with_before",
        "expert",
        "finished",
        "first",
        "lease",
        "memory",
        "reads",
        "room",
        "runs",
        "stop",
    )

    def __init__(
        self,
        runs: Sequence[Run],
        first: int = 0,
        stop: int = 0,
        *,
        before: Block | None = None,
        expert: int = 0,
        room: U8 | None = None,
        finished: bool = False,
    ) -> None:
        """`before` lends its last page where this one begins in it. `room` is memory of its own, on a page's boundary,
        which holds its bytes already where it is `finished`."""
        self.runs, self.first, self.stop = runs, first, stop
        self.expert, self.room, self.finished = expert, room, finished
        self.memory: U8 | None = room
        self.lease: Lease | None = None
        self.reads: list[Pending] = []
        self._before = before
        self._layout: Layout | None = None
        self._with_before = False
        self._places: list[int] = []
        self._gathers: list[tuple[int, list[tuple[int, int]]]] = []
        self._carries: list[tuple[int, int]] = []
        if finished:
            self.plan()

    def plan(self) -> Layout:
        """What has to be read, into how much room."""
        with_before = self._before is not None and self._before.lease is not None
        if self._layout is None or self._with_before != with_before:
            self._with_before = with_before
            self._layout = self._planned(self._before if with_before else None)
        return self._layout

    def _planned(self, before: Block | None) -> Layout:
        layout = Layout()
        self._places, self._gathers, self._carries = [], [], []
        for index, run in enumerate(self.runs):
            if self._held(run):
                self._places.append(0)
                continue
            segments = run.segments(self.first, self._stop(run))
            if len(segments) > 1:  # which may lie in any order, and are brought together when they are there
                layout.seal()
                start = layout.nbytes
                pieces = [(layout.add(*segment, run.of.info.name)[0], segment[2]) for segment in segments]
                layout.seal()
                self._gathers.append((start, pieces))
                self._places.append(start)
                continue
            source = None if before is None else before._end_of(index, segments)
            place, carried = layout.add(*segments[0], run.of.info.name, source is not None)
            if carried and source is not None:
                self._carries.append((place, source))
            self._places.append(place)
        return layout

    def _end_of(self, index: int, segments: list[tuple[ModelFile, int, int]]) -> int | None:
        """Where in this block's memory the first byte of these segments of a run would lie, in the page that they begin
        in; `None` where that is not there."""
        run = self.runs[index]
        own = [] if self._held(run) else run.segments(self.first, self._stop(run))
        if len(own) != 1 or len(segments) != 1:
            return None
        (file, offset, nbytes), (next_file, next_offset, _) = own[0], segments[0]
        if file is not next_file or offset + nbytes != next_offset or not next_offset % PAGE:
            return None
        return self._places[index] + nbytes

    def take_over(self) -> None:
        """Copy what is shared with the block before, which must be finished and still have its memory."""
        if self._carries:
            assert self.memory is not None and self._before is not None and self._before.memory is not None
            for place, source in self._carries:
                place, source = place // PAGE * PAGE, source // PAGE * PAGE
                self.memory[place : place + PAGE] = self._before.memory[source : source + PAGE]
        self._before = None

    def finish(self) -> None:
        """Bring what was read into its order."""
        if self.finished:
            return
        if self.memory is not None:
            for start, pieces in self._gathers:
                _gather(self.memory, start, pieces)
        ordered = set()
        for index, run in enumerate(self.runs):
            if not self._held(run) and self._places[index] not in ordered:
                ordered.add(self._places[index])  # the same weight twice has its bytes in one place
                run.put_in_order(self._bytes(index))
        self.finished = True

    @property
    def data(self) -> tuple[U8, ...]:
        """Of each run uint8 [its units here, …]."""
        return tuple(
            run.held[self.first : self._stop(run)] if self._held(run) else self._bytes(index).reshape(-1, *run.shape)
            for index, run in enumerate(self.runs)
        )

    @property
    def nbytes(self) -> int:
        return sum(run.unit * (self._stop(run) - self.first) for run in self.runs)

    def _stop(self, run: Run) -> int:
        return self.stop if self.room is None else run.count

    def _held(self, run: Run) -> bool:
        return self._stop(run) <= len(run.held)

    def _bytes(self, index: int) -> U8:
        assert self.memory is not None
        place, run = self._places[index], self.runs[index]
        return self.memory[place : place + run.unit * (self._stop(run) - self.first)]


def _gather(memory: U8, start: int, pieces: Sequence[tuple[int, int]]) -> None:
    """Bring pieces, by their places and bytes, one after the other to `start`, before which none of them lies.

    All move towards the start, over those before them at most, but for those that lie before one that comes earlier:
    only they are copied aside, and `Layout` puts none there but what shares its pages with that one.
    """
    furthest = accumulate((place for place, _ in pieces), max)
    aside = [place < latest for (place, _), latest in zip(pieces, furthest, strict=True)]
    views = [memory[place : place + nbytes] for place, nbytes in pieces]
    moved = [view.copy() if apart else view for view, apart in zip(views, aside, strict=True)]
    for data in moved:
        memory[start : start + data.size] = data
        start += data.size


def windows(
    runs: Sequence[Run], block_bytes: int, block_rows: int | None, room: int, *, expert: int = 0
) -> Iterator[Block]:
    """All units of the runs, which have the same number of them, in blocks.

    A block has at most `block_bytes` and `block_rows`, and needs no more than `room`, as far as units can be parted;
    their rows are multiples of 16 where that is possible. Units that all runs hold are blocks without a read.
    """
    count = runs[0].count
    bounds = sorted({0, count, *(min(len(run.held), count) for run in runs)})
    before: Block | None = None
    for low, high in pairwise(bounds):
        loose = [run for run in runs if len(run.held) < high]
        if not loose:
            yield Block(runs, low, high, expert=expert)
            continue
        together = rows_together(runs)
        size = _units(loose, high - low, block_bytes, block_rows, room, together)
        first = low
        while first < high:
            block = Block(runs, first, min(first + size, high), before=before, expert=expert)
            while any(run.scattered for run in loose) and block.plan().nbytes > room and block.stop - first > together:
                half = max((block.stop - first) // 2 // together, 1) * together
                block = Block(runs, first, first + half, before=before, expert=expert)
            yield block
            before, first = block, block.stop


def _units(runs: Sequence[Run], count: int, block_bytes: int, block_rows: int | None, room: int, together: int) -> int:
    """Units a block: about equal blocks, so that none is too small for the disk."""
    unit = sum(run.unit for run in runs)
    most = min(block_bytes, room - 2 * PAGE * len(runs)) // unit
    if block_rows is not None:
        rows = 1 if len(runs[0].shape) == 1 else runs[0].shape[0]
        most = min(most, block_rows // rows)
    step = together
    if len(runs[0].shape) == 1 and most >= (sixteen := math.lcm(together, 16)):
        step = sixteen
    most = max(most // step * step, step)
    blocks = -(-count // most)
    return -(-count // (blocks * step)) * step
