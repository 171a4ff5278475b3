from __future__ import annotations

from collections import deque
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

from engine.errors import BudgetError
from engine.memory.arena import Arena, Lease
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile, Pending


def taken(arena: Arena, pages: int, leaving: int = 0) -> Lease:
    lease = arena.take(pages * PAGE, leaving * PAGE)
    assert lease is not None
    return lease


def pending() -> Pending:
    return Pending(ModelFile(Path(__file__)), 0, memoryview(b""), "w", 0)


def full(arena: Arena, pages: int, leaving: int = 0) -> bool:
    return arena.take(pages * PAGE, leaving * PAGE) is None


def test_leases_are_whole_pages_on_their_boundaries() -> None:
    arena = Arena(10 * PAGE + 5)
    assert arena.nbytes == 10 * PAGE
    lease = arena.take(PAGE + 1)
    assert lease is not None and lease.nbytes == lease.data.size == 2 * PAGE
    assert lease.data.ctypes.data % PAGE == 0
    assert arena.used == arena.peak == 2 * PAGE


def test_what_does_not_fit_now_is_not_lent_until_what_was_before_is_back() -> None:
    arena = Arena(4 * PAGE)
    first, second = taken(arena, 2), taken(arena, 1)
    assert full(arena, 2)
    second.give_back()
    first.give_back()
    assert taken(arena, 4).start == 0
    assert (arena.used, arena.peak) == (4 * PAGE, 4 * PAGE)


def test_the_ring_goes_round_without_parting_a_lease() -> None:
    arena = Arena(5 * PAGE)
    first, second = taken(arena, 2), taken(arena, 2)
    first.give_back()
    third = taken(arena, 2)  # one page at the end is too little
    assert third.start == 0
    assert full(arena, 1)
    second.give_back()
    assert taken(arena, 3).start == 2 * PAGE
    assert full(arena, 1)


def test_a_lease_that_is_given_back_out_of_order_waits_for_those_before_it() -> None:
    arena = Arena(6 * PAGE)
    first, second, third = taken(arena, 2), taken(arena, 2), taken(arena, 2)
    second.give_back()
    assert full(arena, 1)
    first.give_back()
    assert taken(arena, 4).start == 0
    third.give_back()
    assert full(arena, 3) and taken(arena, 2).start == 4 * PAGE


def test_the_newest_leases_can_be_given_back_while_older_ones_are_out() -> None:
    arena = Arena(4 * PAGE)
    taken(arena, 2)
    for _ in range(10):
        taken(arena, 2).give_back()
    assert arena.peak == 4 * PAGE


def test_room_can_be_left_for_another() -> None:
    arena = Arena(6 * PAGE)
    assert full(arena, 3, leaving=4)
    first = taken(arena, 2, leaving=4)
    assert full(arena, 1, leaving=4)
    taken(arena, 2, leaving=2)
    first.give_back()
    assert full(arena, 2, leaving=3)
    taken(arena, 2, leaving=2)


def test_a_lease_that_is_still_read_into_stays_out() -> None:
    arena, read = Arena(3 * PAGE), pending()
    lease = taken(arena, 2)
    lease.reads = [pending(), read]
    lease.reads[0].done = True
    assert arena.waits_for() is None  # it is wanted
    lease.give_back()
    assert full(arena, 2)
    assert arena.waits_for() is read
    read.done = True
    assert arena.waits_for() is None
    assert taken(arena, 3).start == 0


def test_too_little_memory_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(BudgetError, match="at least 4096 bytes"):
        Arena(PAGE - 1)
    arena = Arena(PAGE)
    with pytest.raises(BudgetError, match=r"4\.1 kB .* is too little for this model: .* at least 8\.2 kB"):
        arena.take(PAGE + 1)
    with pytest.raises(BudgetError, match=r"The system refused 1000\.0 PB of memory"):
        Arena(10**18)


def test_memory_is_private_and_only_taken_when_it_is_used() -> None:
    before = psutil.Process().memory_info()
    arena = Arena(64 << 20)
    assert psutil.Process().memory_info().rss < before.rss + (16 << 20)
    lease = taken(arena, (64 << 20) // PAGE)
    lease.data[:] = 1
    now = psutil.Process().memory_info()
    assert now.rss > before.rss + (48 << 20)
    assert now.shared < before.shared + (16 << 20)
    del arena, lease
    assert psutil.Process().memory_info().rss < before.rss + (16 << 20)


@pytest.mark.parametrize("seed", range(8))
def test_random_leases_never_share_a_page_and_all_room_comes_back(seed: int) -> None:
    draws = np.random.default_rng(seed)
    pages = int(draws.integers(1, 40))
    arena = Arena(pages * PAGE)
    out: deque[tuple[Lease, int]] = deque()
    for turn in range(600):
        if draws.random() < 0.6:
            lease = arena.take(int(draws.integers(1, pages * PAGE + 1)))
            if lease is not None:
                lease.data[:] = turn % 251
                out.append((lease, turn % 251))
        elif out:
            if draws.random() < 0.3:
                out.rotate(int(draws.integers(0, len(out))))
            lease, value = out.popleft()
            assert (lease.data == value).all()
            lease.give_back()
        spots = sorted((lease.start, lease.nbytes) for lease, _ in out)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(spots))
        assert sum(n for _, n in spots) <= arena.used <= arena.peak <= arena.nbytes
    while out:
        out.popleft()[0].give_back()
    assert taken(arena, pages).start == 0
