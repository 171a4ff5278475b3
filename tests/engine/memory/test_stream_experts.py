from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import ModelFileError
from engine.memory.arena import Arena
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.rows import StreamedRows
from engine.memory.stream import Stream
from tests.engine.memory.streaming import (
    U8,
    HangingReads,
    in_time,
    page_room,
    random_bytes,
    stacked,
    wait_until,
    write,
)

EXPERTS, ROWS, WIDTH = 6, 30, 1000
"""Gate and up are [EXPERTS, ROWS, WIDTH] bytes, down [EXPERTS, WIDTH ÷ 2, 60], and none begins on a page."""
NBYTES = ROWS * WIDTH


class LatestUsed:
    """Experts of one size, of which the latest used are kept. It throws out whatever is not asked for now, and reuses
    the room at once."""

    def __init__(self, slabs: int, nbytes: int, misplaced: int = 0) -> None:
        size = -(-nbytes // PAGE) * PAGE
        room = page_room(slabs * size + PAGE)
        self._free = [room[at * size + misplaced : (at + 1) * size + misplaced] for at in range(slabs)]
        self._kept: OrderedDict[tuple[Hashable, int], U8] = OrderedDict()
        self._wanted: set[tuple[Hashable, int]] = set()
        self.dropped: list[int] = []

    def begin(self, layer: Hashable, ids: Sequence[int]) -> None:
        self._wanted = {(layer, expert) for expert in ids}

    def find(self, layer: Hashable, expert: int) -> U8 | None:
        if (layer, expert) not in self._kept:
            return None
        self._kept.move_to_end((layer, expert))
        return self._kept[layer, expert]

    def admit(self, layer: Hashable, expert: int, nbytes: int) -> U8 | None:
        if not self._free:
            oldest = next((key for key in self._kept if key not in self._wanted), None)
            if oldest is None:
                return None
            self._free.append(self._kept.pop(oldest))
        room = self._kept[layer, expert] = self._free.pop()
        assert room.size >= nbytes
        return room

    def drop(self, layer: Hashable, expert: int) -> None:
        self.dropped.append(expert)
        room = self._kept.pop((layer, expert), None)
        if room is not None:
            self._free.append(room)


class Mixture:
    """A stream over the experts of a file, and what they should be."""

    def __init__(self, path: Path, slabs: int, arena: int = 1 << 18, threads: int = 2, misplaced: int = 0) -> None:
        data = np.fromfile(path, np.uint8)
        self.files, self.pool = ModelFiles(keep_cached=False), ReadPool(threads)
        self.slabs = LatestUsed(slabs, 3 * (NBYTES + 2 * PAGE), misplaced)
        self.stream = Stream(self.files, self.pool, Arena(arena), block_bytes=1 << 15, slabs=self.slabs)
        self.layers: list[tuple[StreamedRows, StreamedRows, StreamedRows]] = []
        self.expected: list[tuple[U8, U8, U8]] = []
        for base in (123, 700_001):
            both = stacked(path, base, EXPERTS, 2 * ROWS, WIDTH)
            down = stacked(path, base + 2 * EXPERTS * NBYTES, EXPERTS, WIDTH // 2, 60)
            gate, up = self.stream.stack(both, EXPERTS, rows=ROWS), self.stream.stack(both, EXPERTS, start=ROWS)
            self.layers.append((gate, up, self.stream.stack(down, EXPERTS)))
            wide = data[base : base + both.nbytes].reshape(EXPERTS, 2 * ROWS, WIDTH)
            tall = data[down.offset : down.offset + down.nbytes].reshape(EXPERTS, WIDTH // 2, 60)
            self.expected.append((wide[:, :ROWS], wide[:, ROWS:], tall))

    def check(self, layer: int, ids: Sequence[int]) -> None:
        """Ask for experts of a layer, and compare all of their bytes."""
        expected, done = self.expected[layer], {(expert, down): 0 for expert in ids for down in (False, True)}
        order = []
        for window in self.stream.experts(*self.layers[layer], ids):
            order.append((window.expert, window.down, window.first))
            assert window.first == done[window.expert, window.down]
            done[window.expert, window.down] += len(window.data[0])
            wholes = expected[2:] if window.down else expected[:2]
            for data, whole in zip(window.data, wholes, strict=True):
                rows = whole[window.expert, window.first : window.first + len(data)]
                np.testing.assert_array_equal(data, rows)
        assert order == sorted(order)
        assert done == {(expert, down): WIDTH // 2 if down else ROWS for expert in ids for down in (False, True)}

    def reads_nothing(self, layer: int, ids: Sequence[int]) -> bool:
        """Whether all of these experts were kept when they were asked for."""
        before = self.stream.counts
        self.check(layer, ids)
        return self.stream.counts.read == before.read

    def close(self) -> None:
        self.pool.close()
        self.files.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "experts", random_bytes(1_400_000))


@pytest.mark.parametrize("slabs", [0, 1, 4, 12])
def test_random_routes_give_the_bytes_of_the_experts(slabs: int, path: Path) -> None:
    draws = np.random.default_rng(slabs)

    def work() -> None:
        for arena in (3 * PAGE, 1 << 17):
            with closing(Mixture(path, slabs, arena)) as mixture:
                for _ in range(15):
                    for layer in range(2):
                        ids = sorted(draws.choice(EXPERTS, int(draws.integers(0, 5)), replace=False).tolist())
                        if draws.random() < 0.15:
                            with closing(mixture.stream.experts(*mixture.layers[layer], [*ids, 5])) as windows:
                                next(windows)
                        mixture.check(layer, ids)

    in_time(work)


def test_only_experts_that_are_asked_for_are_read_and_a_kept_one_is_not_read_again(path: Path) -> None:
    with closing(Mixture(path, slabs=3)) as mixture:
        mixture.check(0, [1, 4])
        first = mixture.stream.counts
        assert 6 * NBYTES <= first.read <= 6 * NBYTES + 2 * 4 * PAGE  # gate and up are one read
        mixture.check(0, [1, 4])
        assert mixture.stream.counts.read == first.read
        mixture.check(0, [0, 1])
        then = mixture.stream.counts - first
        assert 3 * NBYTES <= then.read <= 3 * NBYTES + 4 * PAGE
        assert then.lent == 12 * NBYTES
        assert mixture.slabs.dropped == []


def test_the_walk_behind_a_mixture_is_read_ahead_and_the_mixture_is_not(path: Path, reads: HangingReads) -> None:
    def work() -> None:
        with closing(Mixture(path, slabs=0)) as mixture:
            dense = mixture.stream.matrix(stacked(path, 1_300_000 // PAGE * PAGE, 1, 10, 600))
            for _ in range(3):
                list(mixture.stream.walk([dense]))
                mixture.check(0, [2])
            time.sleep(0.05)
            assert reads.reads[-1] == dense.info.offset
            reads.reads.clear()
            list(mixture.stream.walk([dense]))
            time.sleep(0.05)
            assert reads.reads == []

    in_time(work)


def test_an_expert_that_could_not_be_read_is_dropped_and_read_again(path: Path, reads: HangingReads) -> None:
    def work() -> None:
        with closing(Mixture(path, slabs=4)) as mixture:
            bad = mixture.layers[0][0].matrix(3).segments(0, 1)[0][1] // PAGE * PAGE
            reads.fails = lambda offset: offset == bad
            with pytest.raises(ModelFileError, match="Input/output error"):
                mixture.check(0, [1, 3, 4])
            reads.fails = lambda offset: False
            # As long as others of its reads are under way, it is neither dropped nor kept.
            wait_until(lambda: mixture.reads_nothing(0, [1, 3, 4]))
            assert 3 in mixture.slabs.dropped and 1 not in mixture.slabs.dropped

    in_time(work)


def test_room_that_a_hanging_read_may_write_to_goes_to_no_other_expert(path: Path, reads: HangingReads) -> None:
    def work() -> None:
        with closing(Mixture(path, slabs=2, threads=4)) as mixture:
            bad = mixture.layers[0][0].matrix(3).segments(0, 1)[0][1] // PAGE * PAGE
            reads.which = lambda offset: offset == bad
            cancel = mixture.stream.cancel = Cancel()

            def breaks() -> None:
                reads.hung.acquire()
                cancel.set()

            threading.Thread(target=breaks, daemon=True).start()
            with pytest.raises(Cancelled):
                mixture.check(0, [3])
            reads.which = lambda offset: False
            mixture.stream.cancel = None
            for _ in range(2):
                before = mixture.stream.counts
                mixture.check(0, [3])
                again = mixture.stream.counts - before
                assert (again.found, again.missed) == (0, 1)  # it has a room still, but what is there is not it
                mixture.check(1, [0, 1])
                mixture.check(0, [2, 4])
            assert not mixture.reads_nothing(0, [3])
            mixture.check(0, [2, 4])
            reads.let_go()
            time.sleep(0.05)
            mixture.check(0, [2, 4])  # of which nothing was written over
            wait_until(lambda: mixture.reads_nothing(0, [3, 4]))

    in_time(work)


def test_room_that_does_not_begin_on_a_page_is_a_mistake(path: Path) -> None:
    with closing(Mixture(path, slabs=2, misplaced=64)) as mixture, pytest.raises(ValueError, match="page's boundary"):
        mixture.check(0, [1])
