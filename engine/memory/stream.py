"""The lender of weights that lie on disk, which are read each time they are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from engine.buffers import U8
from engine.cancel import Cancel
from engine.formats.index import TensorInfo
from engine.kernels.lending import ExpertWindow, Lent, Window
from engine.memory.ahead import Ahead, Key
from engine.memory.arena import Arena
from engine.memory.blocks import Block, Layout, most_room, windows
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFiles, Pending, ReadPool
from engine.memory.rows import StreamedRows, put_in_order


class Slabs(Protocol):
    """Experts that are kept in memory. `layer` stands for the gate, up and down matrices of one."""

    def begin(self, layer: Hashable, ids: Sequence[int]) -> None:
        """A pass is about to use these experts of the layer: none of them is to make room for others."""
        ...

    def find(self, layer: Hashable, expert: int) -> U8 | None:
        """The expert's bytes, as they were admitted."""
        ...

    def admit(self, layer: Hashable, expert: int, nbytes: int) -> U8 | None:
        """Room for an expert, uint8 [at least nbytes] on a page's boundary, that of others but of none that the layer
        is about to use; `None` where there is none, or it is not worth it."""
        ...

    def drop(self, layer: Hashable, expert: int) -> None:
        """What was admitted could not be read. Nothing writes to its room any more."""
        ...


@dataclass(frozen=True)
class Counts:
    """What a stream has done so far; the difference of two is what it did in between.

    `read` bytes came from disk, `lent` bytes were given out. `stalled` seconds were spent waiting for the disk. Of
    `windows`, `ready` were there when they were asked for. `peak` bytes of the arena were in use at once, ever. Of
    experts, `found` were kept in memory when they were needed and `missed` were not.
    """

    read: int = 0
    lent: int = 0
    stalled: float = 0.0
    windows: int = 0
    ready: int = 0
    peak: int = 0
    found: int = 0
    missed: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.read - other.read,
            self.lent - other.lent,
            self.stalled - other.stalled,
            self.windows - other.windows,
            self.ready - other.ready,
            self.peak,
            self.found - other.found,
            self.missed - other.missed,
        )


class Stream:
    """A `Lender` of rows in files, through an arena, with the threads of a pool that nobody else waits for.

    What followed what is remembered, and read ahead as far as the arena has room, past the end of a pass into the next
    one. Which experts a mixture needs is not foreseen. All but `stop` is for one thread.
    """

    def __init__(
        self,
        files: ModelFiles,
        pool: ReadPool,
        arena: Arena,
        *,
        block_bytes: int,
        block_rows: int | None = None,
        slabs: Slabs | None = None,
    ) -> None:
        """A block is at most `block_bytes` of all matrices that are walked together, half the arena, and `block_rows`
        rows; but at least one row, head or matrix, whatever comes together. What it takes of the arena is more by at
        most two pages for each stretch of a file (`most_room`)."""
        self._files, self._pool, self._arena, self._slabs = files, pool, arena, slabs
        self._block_bytes, self._block_rows = block_bytes, block_rows
        self._ahead = Ahead(pool, arena, lambda key: None if key in self._mixtures else self._walked(key), self._lost)
        self._mixtures: set[Key] = set()
        self._spoilt: list[tuple[Key, int, U8, list[Pending]]] = []
        self._read_before = pool.bytes_read
        self._found = self._missed = 0
        self._lent = 0

    @property
    def cancel(self) -> Cancel | None:
        """Breaks every wait while it is set."""
        return self._ahead.cancel

    @cancel.setter
    def cancel(self, cancel: Cancel | None) -> None:
        self._ahead.cancel = cancel

    @property
    def counts(self) -> Counts:
        read, ahead = self._pool.bytes_read - self._read_before, self._ahead
        return Counts(
            read, self._lent, ahead.stalled, ahead.windows, ahead.ready, self._arena.peak, self._found, self._missed
        )

    def matrix(
        self, info: TensorInfo, *, start: int = 0, rows: int | None = None, held: U8 | None = None
    ) -> StreamedRows:
        """Rows `start … start + rows - 1` of a matrix, of which the first are `held`: uint8 [h, row_bytes].

        Raises ModelFileError where a file cannot be opened.
        """
        return StreamedRows(self, info, self._files, start=start, rows=rows, held=held)

    def stack(
        self, info: TensorInfo, matrices: int, *, start: int = 0, rows: int | None = None, held: U8 | None = None
    ) -> StreamedRows:
        """These rows of each of so many matrices, of which the first are `held`: uint8 [h, rows, row_bytes]. Raises as
        `matrix` does."""
        return StreamedRows(self, info, self._files, matrices=matrices, start=start, rows=rows, held=held)

    def slab_bytes(self, gate: StreamedRows, up: StreamedRows, down: StreamedRows) -> int:
        """The room that any expert needs: of each matrix whole pages and one more."""
        return sum(most_room(matrix.rows * matrix.row_bytes) for matrix in (gate, up, down))

    def keep_experts(self, slabs: Slabs) -> None:
        """Experts are kept there from now on."""
        self._slabs = slabs

    def expect(self, order: Iterable[Sequence[Lent]]) -> None:
        """What one pass will ask for: matrices that are walked together, or a mixture's gate, up and down stacks; the
        same pass is expected after it."""
        keys = [_key(matrices) for matrices in order]
        self._mixtures |= {key for key in keys if len(key) == 3 and all(each.matrices is not None for each in key)}
        self._ahead.expect(keys)

    def stop(self) -> None:
        """Break what is waited for, now and from now on. For any thread."""
        self._ahead.stop()

    def close(self) -> None:
        """Let go of all memory: nothing is asked for any more. A second call does nothing."""
        self._ahead.close()
        self._mixtures.clear()
        self._spoilt.clear()
        self._slabs = None

    def walk(self, matrices: Sequence[Lent]) -> Iterator[Window]:
        key = _key(matrices)
        with closing(self._ahead.blocks(key, lambda: self._walked(key))) as blocks:
            for block in blocks:
                self._lent += block.nbytes
                yield Window(block.first, block.data)

    def experts(self, gate: Lent, up: Lent, down: Lent, ids: Sequence[int]) -> Iterator[ExpertWindow]:
        key = _key((gate, up, down))
        self._mixtures.add(key)
        with closing(self._ahead.blocks(key, lambda: self._routed(key, ids))) as blocks:
            for block in blocks:
                self._lent += block.nbytes
                data = block.data
                if len(data) > 1:
                    yield ExpertWindow(block.expert, False, block.first, data[:2])
                if len(data) != 2:
                    yield ExpertWindow(block.expert, True, block.first, data[-1:])

    def rows(self, matrix: Lent, ids: Sequence[int]) -> U8:
        (table,) = _key((matrix,))
        if any(not 0 <= row < table.rows for row in ids):
            raise IndexError(f"{table.info.name} has {table.rows} rows")
        made = np.empty((len(ids), table.row_bytes), np.uint8)
        wanted: dict[int, list[int]] = {}
        for place, row in enumerate(ids):
            if row < len(table.held):
                made[place] = table.held[row]
            else:
                wanted.setdefault(table.lies_at(row), []).append(place)
        left = deque(sorted(wanted))
        while left:
            self._read_rows(table, left, wanted, made)
        self._lent += made.size
        return made

    def _read_rows(self, table: StreamedRows, left: deque[int], wanted: dict[int, list[int]], made: U8) -> None:
        """Read as many of the rows that are left as a quarter of the arena has room for, at least one, to all their
        places."""
        layout, run = Layout(), table.whole()
        taken: list[tuple[int, list[tuple[int, int]]]] = []
        while left and (not taken or layout.nbytes + most_room(run.unit) <= self._arena.nbytes // 4):
            row = left.popleft()
            segments = run.segments(row, row + 1)
            taken.append((row, [(layout.add(*segment, table.info.name)[0], segment[2]) for segment in segments]))
        with self._ahead.aside(layout) as memory:
            for row, pieces in taken:
                done = 0
                for at, nbytes in pieces:
                    piece = memory[at : at + nbytes]
                    if table.info.column_runs:
                        put_in_order(piece, table.info)
                    made[wanted[row], done : done + nbytes] = piece
                    done += nbytes

    def _walked(self, key: Key) -> Iterator[Block]:
        runs = [matrix.whole() for matrix in key]
        if any(run.count != runs[0].count for run in runs):
            raise ValueError("matrices that are walked together have the same number of rows")
        return windows(runs, self._block_bytes, self._block_rows, self._arena.nbytes // 2)

    def _routed(self, key: Key, ids: Sequence[int]) -> Iterator[Block]:
        """The blocks of these experts. One that is kept, or is to be, is one block of all three matrices."""
        self._settle()
        spoilt = {expert for layer, expert, *_ in self._spoilt if layer == key}
        found: dict[int, U8 | None] = {}
        if self._slabs is not None:
            self._slabs.begin(key, ids)
            found = {expert: self._slabs.find(key, expert) for expert in ids if expert not in spoilt}
            kept = sum(slab is not None for slab in found.values())
            self._found, self._missed = self._found + kept, self._missed + len(ids) - kept
        for expert in ids:
            runs = [matrix.matrix(expert) for matrix in key]
            if expert not in spoilt and not any(len(run.held) for run in runs):
                slab = found.get(expert)
                room = self._admitted(key, expert) if slab is None else slab
                if room is not None:
                    yield Block(runs, expert=expert, room=room, finished=slab is not None)
                    continue
            for together in (runs[:2], runs[2:]):
                half = self._arena.nbytes // 2
                yield from windows(together, self._block_bytes, self._block_rows, half, expert=expert)

    def _admitted(self, key: Key, expert: int) -> U8 | None:
        if self._slabs is None:
            return None
        room = self._slabs.admit(key, expert, self.slab_bytes(*key))
        if room is not None and room.ctypes.data % PAGE:
            raise ValueError("an expert's room must begin on a page's boundary")
        if room is not None and any(np.may_share_memory(room, spoilt) for _, _, spoilt, _ in self._spoilt):
            self._slabs.drop(key, expert)  # a read that hangs may still write there
            return None
        return room

    def _lost(self, key: Key, block: Block) -> None:
        self._spoilt.append((key, block.expert, cast(U8, block.room), block.reads))

    def _settle(self) -> None:
        """Tell of the experts that could not be read into their slabs, once nothing writes there."""
        spoilt, self._spoilt = self._spoilt, []
        for layer, expert, room, reads in spoilt:
            if self._slabs is not None and all(read.done for read in reads):
                self._slabs.drop(layer, expert)
            else:
                self._spoilt.append((layer, expert, room, reads))


def _key(matrices: Sequence[Lent]) -> Key:
    for matrix in matrices:
        if not isinstance(matrix, StreamedRows):
            raise TypeError(f"{matrix} is lent by another lender")
    return cast(Key, tuple(matrices))
