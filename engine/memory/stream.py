"""The lender of weights that lie on disk: reads them ahead, in the order in which they were used before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from engine.buffers import U8
from engine.cancel import Cancel, Cancelled
from engine.formats.index import TensorInfo
from engine.kernels.lending import ExpertWindow, Lent, Window
from engine.memory.arena import Arena, Lease
from engine.memory.blocks import Block, Layout, most_room, windows
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFiles, Pending, ReadPool
from engine.memory.rows import StreamedRows, put_in_order

MOST_READ, LEAST_READ = 1 << 20, 1 << 18
"""Bytes of one read. Larger ones are no faster; smaller ones are made where an arena holds few, so that all threads
have something to do."""

Key = tuple[StreamedRows, ...]
"""What is asked for together: the matrices of a walk, or gate, up and down of a mixture."""


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
    `windows`, `ready` were there when they were asked for. `peak` bytes of the arena were in use at once.
    """

    read: int = 0
    lent: int = 0
    stalled: float = 0.0
    windows: int = 0
    ready: int = 0
    peak: int = 0

    def __sub__(self, other: Counts) -> Counts:
        """`peak` is that of all time."""
        return Counts(
            self.read - other.read,
            self.lent - other.lent,
            self.stalled - other.stalled,
            self.windows - other.windows,
            self.ready - other.ready,
            self.peak,
        )


class _Step:
    """What is asked for at once, and the blocks of it that are on their way. Without `blocks` it is not known yet."""

    __slots__ = ("after_rows", "blocks", "key", "next", "started")

    def __init__(self, key: Key, blocks: Iterator[Block] | None, after_rows: bool = False) -> None:
        self.key = key
        self.blocks = blocks
        self.after_rows = after_rows
        """Whether single rows may be asked for before it, which need room meanwhile."""
        self.started: deque[Block] = deque()
        self.next: Block | None = None

    def upcoming(self) -> Block | None:
        """The first block that has not been started; `None` when all have."""
        if self.next is None and self.blocks is not None:
            self.next = next(self.blocks, None)
        return self.next


class Stream:
    """A `Lender` of rows in files, through an arena, with the threads of a pool that nobody else waits for.

    What followed what is remembered, and read ahead as far as the arena has room, past the end of a pass into the next
    one. Which experts a mixture needs is not foreseen. When something else is asked for, what was read ahead in vain
    is given up. All but `stop` is for one thread.

    `cancel` breaks every wait while it is set.
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
        most two pages for each of its matrices (`most_room`)."""
        self.cancel: Cancel | None = None
        self._files, self._pool, self._arena, self._slabs = files, pool, arena, slabs
        self._block_bytes, self._block_rows = block_bytes, block_rows
        share = arena.nbytes // (2 * pool.threads) // PAGE * PAGE
        self._most_read = min(max(share, LEAST_READ), MOST_READ)
        self._stopped = False
        self._next: dict[Key, Key] = {}
        self._mixtures: set[Key] = set()
        self._previous: Key | None = None
        self._steps: deque[_Step] = deque()
        self._open: _Step | None = None
        self._current: Block | None = None
        self._rows_room: dict[StreamedRows, int] = {}
        self._rows_after: set[Key] = set()
        self._spoilt: list[tuple[Key, int, U8, list[Pending]]] = []
        self._read_before = pool.bytes_read
        self._lent = self._windows = self._ready = 0
        self._stalled = 0.0

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
        for key, following in zip(keys, keys[1:] + keys[:1], strict=True):
            self._next[key] = following
            if len(key) == 3 and all(matrices.matrices is not None for matrices in key):
                self._mixtures.add(key)

    def walk(self, matrices: Sequence[Lent]) -> Iterator[Window]:
        key = _key(matrices)
        step = self._begin(key, lambda: self._walked(key))
        with closing(self._blocks(step)) as blocks:
            for block in blocks:
                yield Window(block.first, block.data)

    def experts(self, gate: Lent, up: Lent, down: Lent, ids: Sequence[int]) -> Iterator[ExpertWindow]:
        key = _key((gate, up, down))
        self._mixtures.add(key)
        step = self._begin(key, lambda: self._routed(key, ids))
        with closing(self._blocks(step)) as blocks:
            for block in blocks:
                data = block.data
                if len(data) > 1:
                    yield ExpertWindow(block.expert, False, block.first, data[:2])
                if len(data) != 2:
                    yield ExpertWindow(block.expert, True, block.first, data[-1:])

    def rows(self, matrix: Lent, ids: Sequence[int]) -> U8:
        (table,) = _key((matrix,))
        if any(not 0 <= row < table.rows for row in ids):
            raise IndexError(f"{table.info.name} has {table.rows} rows")
        self._check()
        if self._open is not None:
            self._forget()
        if self._previous is not None:
            self._rows_after.add(self._previous)
        made = np.empty((len(ids), table.row_bytes), np.uint8)
        wanted: dict[int, list[int]] = {}
        for place, row in enumerate(ids):
            if row < len(table.held):
                made[place] = table.held[row]
            else:
                wanted.setdefault(table.lies_at(row), []).append(place)
        left = deque(sorted(wanted))
        self._rows_room[table] = 0
        try:
            while left:
                self._read_rows(table, left, wanted, made)
        except BaseException:
            self._forget()
            raise
        self._lent += made.size
        return made

    def stop(self) -> None:
        """Break what is waited for, now and from now on. For any thread."""
        self._stopped = True
        self._pool.wake()

    @property
    def counts(self) -> Counts:
        read = self._pool.bytes_read - self._read_before
        return Counts(read, self._lent, self._stalled, self._windows, self._ready, self._arena.peak)

    def _walked(self, key: Key) -> Iterator[Block]:
        runs = [matrix.whole() for matrix in key]
        if any(run.count != runs[0].count for run in runs):
            raise ValueError("matrices that are walked together have the same number of rows")
        return windows(runs, self._block_bytes, self._block_rows, self._arena.nbytes // 2)

    def _routed(self, key: Key, ids: Sequence[int]) -> Iterator[Block]:
        """The blocks of these experts. A kept one is one block, of all three matrices."""
        slabs = self._slabs
        self._settle()
        if slabs is not None:
            slabs.begin(key, ids)
        found = {expert: slabs.find(key, expert) for expert in ids} if slabs is not None else {}
        spoilt = {(layer, expert) for layer, expert, *_ in self._spoilt}
        for expert in ids:
            runs = [matrix.matrix(expert) for matrix in key]
            slab = found.get(expert)
            if (key, expert) not in spoilt and not any(len(run.held) for run in runs):
                if slab is not None:
                    block = Block(runs, 0, runs[0].count, expert=expert, room=slab, finished=True)
                    block.plan()
                    yield block
                    continue
                room = self._admitted(key, expert)
                if room is not None:
                    yield Block(runs, 0, runs[0].count, expert=expert, room=room)
                    continue
            for together in (runs[:2], runs[2:]):
                room_bytes = self._arena.nbytes // 2
                yield from windows(together, self._block_bytes, self._block_rows, room_bytes, expert=expert)

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

    def _settle(self) -> None:
        """Tell of what could not be read into its slab, once nothing writes there."""
        spoilt, self._spoilt = self._spoilt, []
        for layer, expert, room, reads in spoilt:
            if self._slabs is not None and all(read.done for read in reads):
                self._slabs.drop(layer, expert)
            else:
                self._spoilt.append((layer, expert, room, reads))

    def _begin(self, key: Key, blocks: Callable[[], Iterator[Block]]) -> _Step:
        self._check()
        if self._open is not None:
            self._forget()
        if self._previous is not None:
            self._next[self._previous] = key
        self._previous = key
        while self._steps and self._steps[0].key != key:
            self._drop(self._steps.popleft())
        if not self._steps:
            self._steps.append(_Step(key, None))
        step = self._open = self._steps[0]
        if step.blocks is None:
            step.blocks = blocks()
        step.after_rows = False
        return step

    def _blocks(self, step: _Step) -> Generator[Block, None, None]:
        """The blocks of the step that is open, each in memory until the next one is asked for."""
        try:
            while (block := self._advance(step)) is not None:
                self._lent += block.nbytes
                yield block
            self._steps.popleft()
            self._open = None
        except BaseException:
            if self._open is step:
                self._forget()
            raise

    def _advance(self, step: _Step) -> Block | None:
        """Give the last block back, start as many as there is room for, and wait for the next one."""
        if self._open is not step:
            raise RuntimeError("something else was asked for before this was closed")
        self._check()
        block = step.started.popleft() if step.started else None
        if block is not None:
            block.take_over()
        self._give_back(block)
        self._fill()
        if block is None:
            if not step.started:
                following = step.upcoming()
                if following is None:
                    return None
                self._start_next(step, self._room(following.plan().nbytes))
            block = self._current = step.started.popleft()
            block.take_over()
        self._windows += 1
        self._ready += self._await(block.reads)
        block.finish()
        return block

    def _give_back(self, now: Block | None) -> None:
        """The current block is used up; it is the turn of another."""
        if self._current is not None and self._current.lease is not None:
            self._current.lease.give_back()
            self._current.lease = None
        self._current = now

    def _fill(self) -> None:
        """Start blocks in the order in which they will be asked for, while there is room."""
        while self._steps:
            step = self._steps[-1]
            if step.blocks is None:
                return
            block = step.upcoming()
            if block is None:
                following = self._next.get(step.key)
                # No more than one pass ahead, which an arena may well have room for.
                if following is None or len(self._steps) > len(self._next):
                    return
                blocks = None if following in self._mixtures else self._walked(following)
                after_rows = step.after_rows or step.key in self._rows_after
                self._steps.append(_Step(following, blocks, after_rows))
                continue
            nbytes = block.plan().nbytes
            lease = None
            if nbytes and block.room is None:
                if nbytes > self._arena.nbytes:
                    return
                rows_room = max(self._rows_room.values(), default=0) if step.after_rows else 0
                lease = self._arena.take(nbytes, leaving=rows_room)
                if lease is None:
                    return
            self._start_next(step, lease)

    def _start_next(self, step: _Step, lease: Lease | None) -> None:
        block, step.next = cast(Block, step.next), None
        step.started.append(block)
        if lease is not None:
            block.lease, block.memory = lease, lease.data
        if block.memory is not None and not block.finished:
            block.reads = block.plan().read(self._pool, block.memory, self._most_read)
            if lease is not None:
                lease.reads = block.reads

    def _read_rows(self, table: StreamedRows, left: deque[int], wanted: dict[int, list[int]], made: U8) -> None:
        """Read as many of the rows that are left as a quarter of the arena has room for, at least one, to all their
        places."""
        layout, run = Layout(), table.whole()
        taken: list[tuple[int, list[tuple[int, int]]]] = []
        while left and (not taken or layout.nbytes + most_room(run.unit) <= self._arena.nbytes // 4):
            row = left.popleft()
            segments = run.segments(row, row + 1)
            taken.append((row, [(layout.add(*segment, table.info.name)[0], segment[2]) for segment in segments]))
        lease = self._room(layout.nbytes)
        try:
            lease.reads = layout.read(self._pool, lease.data, self._most_read, urgent=True)
            self._await(lease.reads)
            for row, pieces in taken:
                done = 0
                for at, nbytes in pieces:
                    piece = lease.data[at : at + nbytes]
                    if table.info.column_runs:
                        put_in_order(piece, table.info)
                    made[wanted[row], done : done + nbytes] = piece
                    done += nbytes
        finally:
            self._pool.abandon(lease.reads)
            lease.give_back()
        self._rows_room[table] = max(self._rows_room[table], lease.nbytes)

    def _room(self, nbytes: int) -> Lease:
        """Wait for room that is needed now, and give up what was read ahead if it is in the way."""
        while (lease := self._arena.take(nbytes)) is None:
            hanging = self._arena.waits_for()
            if hanging is not None:
                self._wait(hanging)
            else:
                self._drop_ahead()
        return lease

    def _await(self, reads: Sequence[Pending]) -> bool:
        """Wait until all are done; raises what failed. → Whether they were done already."""
        ready = all(read.done for read in reads)
        for read in reads:
            if not read.done:
                self._wait(read)
            if read.error is not None:
                raise read.error
        return ready

    def _wait(self, read: Pending) -> None:
        started = time.perf_counter()
        with nullcontext() if self.cancel is None else self.cancel.on_set(self._pool.wake):
            done = self._pool.wait(read, self._broken)
        self._stalled += time.perf_counter() - started
        if not done:
            raise Cancelled

    def _broken(self) -> bool:
        return self._stopped or (self.cancel is not None and self.cancel.is_set())

    def _check(self) -> None:
        if self._broken():
            raise Cancelled

    def _forget(self) -> None:
        """Give up all that was asked for and read ahead: what is asked for next stands by itself."""
        if self._current is not None:
            self._drop_block(self._current)
            self._current = None
        while self._steps:
            self._drop(self._steps.pop())
        self._open = self._previous = None

    def _drop_ahead(self) -> None:
        while self._steps and self._steps[-1] is not self._open:
            self._drop(self._steps.pop())

    def _drop(self, step: _Step) -> None:
        for block in step.started:
            self._drop_block(block)
        step.started.clear()

    def _drop_block(self, block: Block) -> None:
        self._pool.abandon(block.reads)
        if block.lease is not None:
            block.lease.give_back()
            block.lease = None
        elif block.room is not None and not block.finished:
            # Experts are never foreseen, so that the step is the one that is open.
            assert self._open is not None
            self._spoilt.append((self._open.key, block.expert, block.room, block.reads))


def _key(matrices: Sequence[Lent]) -> Key:
    for matrix in matrices:
        if not isinstance(matrix, StreamedRows):
            raise TypeError(f"{matrix} is lent by another lender")
    return cast(Key, tuple(matrices))
