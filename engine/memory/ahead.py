"""What is asked for, in order, and read before it is: as far as there is room, as it was in that order before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import cast

from engine.buffers import U8
from engine.cancel import Cancel, Cancelled
from engine.memory.arena import Arena, Lease
from engine.memory.blocks import Block, Layout
from engine.memory.raw_file import PAGE
from engine.memory.reader import Pending, ReadPool
from engine.memory.rows import StreamedRows

MOST_READ, LEAST_READ = 1 << 20, 1 << 18
"""Bytes of one read. Larger ones are no faster; smaller ones are made where an arena holds few, so that all threads
have something to do."""

Key = tuple[StreamedRows, ...]
"""What is asked for together: the matrices of a walk, or gate, up and down of a mixture."""


class _Step:
    """What is asked for at once, and the blocks of it that are on their way. Without `blocks` it is not known yet."""

    __slots__ = ("blocks", "key", "next", "started")

    def __init__(self, key: Key, blocks: Iterator[Block] | None) -> None:
        self.key = key
        self.blocks = blocks
        self.started: deque[Block] = deque()
        self.next: Block | None = None

    def upcoming(self) -> Block | None:
        """The first block that has not been started; `None` when all have."""
        if self.next is None and self.blocks is not None:
            self.next = next(self.blocks, None)
        return self.next


class Ahead:
    """Blocks on their way through an arena. All but `stop` is for one thread.

    After each key the one that followed it last time is foreseen, and so on, round the pass and into the next one, no
    further than a whole pass. Where something else is asked for, what stands before that in the order is given up.
    """

    def __init__(
        self,
        pool: ReadPool,
        arena: Arena,
        foreseen: Callable[[Key], Iterator[Block] | None],
        lost: Callable[[Key, Block], None],
    ) -> None:
        """`foreseen` names the blocks of a key that is to come, where they can be known before it is asked for. `lost`
        is told of blocks with a room of their own that was not filled."""
        self.cancel: Cancel | None = None
        self.windows = self.ready = 0
        self.stalled = 0.0
        self._pool, self._arena, self._foreseen, self._lost = pool, arena, foreseen, lost
        share = arena.nbytes // (2 * pool.threads) // PAGE * PAGE
        self._most_read = min(max(share, LEAST_READ), MOST_READ)
        self._stopped = False
        self._following: dict[Key, Key] = {}
        self._previous: Key | None = None
        self._steps: deque[_Step] = deque()
        self._open: _Step | None = None
        self._current: Block | None = None
        self._aside_after: set[Key] = set()
        self._aside_room = 0
        self._aside_last = False

    def expect(self, keys: Sequence[Key]) -> None:
        """These will be asked for, one after the other, again and again."""
        self._following.update(zip(keys, [*keys[1:], *keys[:1]], strict=True))

    def stop(self) -> None:
        """Break what is waited for, now and from now on."""
        self._stopped = True
        self._pool.wake()

    def close(self) -> None:
        """Break all waits, and let go of all memory: nothing is asked for any more. A second call does nothing."""
        self.stop()
        self._forget()
        self._following.clear()
        self._aside_after.clear()
        # These refer to who holds this, and weights in memory must not wait for the garbage collector.
        self._foreseen, self._lost = _nothing, _nowhere

    def blocks(self, key: Key, made: Callable[[], Iterator[Block]]) -> Generator[Block, None, None]:
        """The blocks of the key, which are `made` now where they were not foreseen, each in memory until the next one
        is asked for."""
        step = self._begin(key, made)
        try:
            while (block := self._advance(step)) is not None:
                yield block
            self._steps.popleft()
            self._open = None
        except BaseException:
            if self._open is step:
                self._forget()
            raise

    @contextmanager
    def aside(self, layout: Layout) -> Iterator[U8]:
        """Memory with these pages, beside the order: room for it will be kept in the same place of the next pass."""
        self._check()
        if self._open is not None:
            self._forget()
        if self._previous is not None:
            self._aside_after.add(self._previous)
        try:
            lease = self._room(layout.nbytes)
            self._aside_room = max(lease.nbytes, self._aside_room if self._aside_last else 0)
            self._aside_last = True
            try:
                lease.reads = layout.read(self._pool, lease.data, self._most_read, urgent=True)
                self._await(lease.reads)
                yield lease.data
            finally:
                self._pool.abandon(lease.reads)
                lease.give_back()
        except BaseException:
            self._forget()
            raise

    def _begin(self, key: Key, made: Callable[[], Iterator[Block]]) -> _Step:
        self._check()
        if self._open is not None:
            self._forget()
        if self._previous is not None:
            self._following[self._previous] = key
        self._previous, self._aside_last = key, False
        while self._steps and self._steps[0].key != key:
            self._drop(self._steps.popleft())
        if not self._steps:
            self._steps.append(_Step(key, None))
        step = self._open = self._steps[0]
        if step.blocks is None:
            step.blocks = made()
        return step

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
                upcoming = step.upcoming()
                if upcoming is None:
                    return None
                self._start_next(step, self._room(upcoming.plan().nbytes))
            block = self._current = step.started.popleft()
            block.take_over()
        self.windows += 1
        self.ready += self._await(block.reads)
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
                key = self._following.get(step.key)
                if key is None or len(self._steps) > len(self._following):
                    return
                self._steps.append(_Step(key, self._foreseen(key)))
                continue
            lease = None
            if block.room is None and (nbytes := block.plan().nbytes):
                if nbytes > self._arena.nbytes:
                    return
                lease = self._arena.take(nbytes, leaving=self._left_for_aside())
                if lease is None:
                    return
            self._start_next(step, lease)

    def _left_for_aside(self) -> int:
        """Bytes that the last step leaves to what may be asked for aside before it."""
        between = islice(self._steps, len(self._steps) - 1)
        return self._aside_room if any(step.key in self._aside_after for step in between) else 0

    def _start_next(self, step: _Step, lease: Lease | None) -> None:
        block, step.next = cast(Block, step.next), None
        step.started.append(block)
        if lease is not None:
            block.lease, block.memory = lease, lease.data
        if block.memory is not None and not block.finished:
            block.reads = block.plan().read(self._pool, block.memory, self._most_read)
            if lease is not None:
                lease.reads = block.reads

    def _room(self, nbytes: int) -> Lease:
        """Wait for room that is needed now, and give up what was read ahead if it is in the way."""
        while (lease := self._arena.take(nbytes)) is None:
            unwanted = self._arena.waits_for()
            if unwanted is not None:
                self._wait(unwanted)
            else:
                while self._steps and self._steps[-1] is not self._open:
                    self._drop(self._steps.pop())
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
        self.stalled += time.perf_counter() - started
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
            self._drop_block(cast(_Step, self._open).key, self._current)
            self._current = None
        while self._steps:
            self._drop(self._steps.pop())
        self._open = self._previous = None

    def _drop(self, step: _Step) -> None:
        for block in step.started:
            self._drop_block(step.key, block)
        step.started.clear()

    def _drop_block(self, key: Key, block: Block) -> None:
        self._pool.abandon(block.reads)
        if block.lease is not None:
            block.lease.give_back()
            block.lease = None
        elif block.room is not None and not block.finished:
            self._lost(key, block)


def _nothing(key: Key) -> None:
    """What is foreseen of a key after the end."""


def _nowhere(key: Key, block: Block) -> None:
    """Who is told of a block that is lost after the end."""
