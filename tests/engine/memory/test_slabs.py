from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from engine.errors import BudgetError
from engine.memory.slabs import PAGE, Counts, Slabs

ROOMS = {0: 3 * PAGE, 2: 5 * PAGE - 9, 3: 1, 7: 2 * PAGE}
"""Layers with a mixture, of four sizes."""
N_EXPERTS = 16


def fill(slabs: Slabs, layer: int, ids: Sequence[int]) -> set[int]:
    """A pass that reads what it did not find: → the experts that were found."""
    slabs.begin(layer, ids)
    found = {expert for expert in ids if slabs.find(layer, expert) is not None}
    for expert in ids:
        if expert not in found:
            slabs.admit(layer, expert, 8)
    return found


def passes(draws: random.Random, count: int) -> Iterator[tuple[int, list[int]]]:
    """Replies with a prompt's chunk now and then."""
    for _ in range(count):
        for layer in ROOMS:
            used = draws.choice((1, 3, 3, 3, 3, 3, 3, N_EXPERTS - 1))
            yield layer, sorted(draws.sample(range(N_EXPERTS), used))


def where(data: np.ndarray) -> tuple[int, int]:
    return data.ctypes.data, data.ctypes.data + data.nbytes


@pytest.mark.parametrize("nbytes", [0, PAGE, 10 * PAGE, 11 * PAGE + 5, 75 * PAGE, 175 * PAGE, 1 << 22])
def test_rooms_lie_apart_on_pages_and_never_take_more_than_granted(nbytes: int) -> None:
    slabs = Slabs(nbytes, N_EXPERTS, ROOMS)
    given, without = [], []
    for layer, size in ROOMS.items():
        slabs.begin(layer, range(N_EXPERTS))
        rooms = [where(room) for expert in range(N_EXPERTS) if (room := slabs.admit(layer, expert, size)) is not None]
        given += rooms
        without += [size] * (N_EXPERTS - len(rooms))
    given.sort()
    assert all(start % PAGE == 0 for start, _ in given)
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(given))
    pages = sum(-(-(stop - start) // PAGE) for start, stop in given)
    assert pages * PAGE == slabs.nbytes <= nbytes
    # No expert that has no room could have had one in what is left.
    assert nbytes - slabs.nbytes < -(-min(without) // PAGE) * PAGE if without else len(given) == 64


def test_every_layer_has_as_many_rooms_as_the_others_but_for_one_more_where_it_fits() -> None:
    slabs = Slabs(3 * 11 * PAGE + 3 * PAGE, N_EXPERTS, ROOMS)
    numbers = []
    for layer in ROOMS:
        slabs.begin(layer, range(N_EXPERTS))
        numbers.append(sum(slabs.admit(layer, expert, 1) is not None for expert in range(N_EXPERTS)))
    assert numbers == [4, 3, 3, 3]


def test_what_was_read_stays_as_it_was_until_it_is_thrown_out_and_nothing_in_use_is() -> None:
    draws = random.Random(4)
    slabs = Slabs(70 * PAGE, N_EXPERTS, ROOMS)
    patterns: dict[tuple[int, int], bytes] = {}
    finds = misses = bytes_found = refused = 0
    in_use: dict[int, list[int]] = {}
    for layer, ids in passes(draws, 150):
        slabs.begin(layer, ids)
        in_use[layer] = []
        for expert in ids:
            data = slabs.find(layer, expert)
            if data is not None:
                finds, bytes_found = finds + 1, bytes_found + data.nbytes
                assert data.tobytes() == patterns[layer, expert]
                in_use[layer].append(expert)
                continue
            misses += 1
            pattern = draws.randbytes(draws.randint(1, ROOMS[layer]))
            room = slabs.admit(layer, expert, len(pattern))
            if room is None:
                refused += 1
                continue
            assert room.dtype == np.uint8 and room.shape == (len(pattern),)
            if draws.random() < 0.1:
                slabs.drop(layer, expert)
                continue
            room[:] = np.frombuffer(pattern, np.uint8)
            patterns[layer, expert] = pattern
            in_use[layer].append(expert)
        assert slabs.counts == Counts(finds, misses, bytes_found)
        for other, experts in in_use.items():  # also those of layers that were passed before
            for expert in experts:
                data = slabs.find(other, expert)
                assert data is not None and data.tobytes() == patterns[other, expert]
                finds, bytes_found = finds + 1, bytes_found + data.nbytes
    assert finds > 500 and misses > 500 and refused > 50


def test_a_prompt_that_asks_for_every_expert_leaves_those_that_replies_use() -> None:
    slabs = Slabs(4 * 11 * PAGE, N_EXPERTS, ROOMS)
    hot = [1, 5, 6, 14]
    for _ in range(12):
        for layer in ROOMS:
            fill(slabs, layer, hot)
    for _ in range(3):
        for layer in ROOMS:
            assert fill(slabs, layer, range(N_EXPERTS)) == set(hot)
    for layer in ROOMS:  # a chunk without them: no longer in use, they may go, but are worth more
        assert fill(slabs, layer, [0, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 15]) == set()
    for layer in ROOMS:
        assert fill(slabs, layer, hot) == set(hot)


def test_another_topic_has_its_experts_in_memory_after_some_tokens() -> None:
    slabs = Slabs(4 * PAGE, N_EXPERTS, {0: PAGE})
    for _ in range(1000):
        fill(slabs, 0, [0, 1, 2, 3])
    tokens = next(token for token in range(1000) if len(fill(slabs, 0, [8, 9, 10, 11])) == 4)
    assert 1 < tokens < 64


def test_one_that_is_used_seldom_does_not_take_the_room_of_one_that_is_used_often() -> None:
    slabs = Slabs(2 * PAGE, N_EXPERTS, {0: PAGE})
    for _ in range(20):
        fill(slabs, 0, [3, 4])
    slabs.begin(0, [9])
    assert slabs.admit(0, 9, PAGE) is None
    assert fill(slabs, 0, [3, 4]) == {3, 4}


def test_a_dropped_expert_gives_its_room_to_the_next() -> None:
    slabs = Slabs(PAGE, N_EXPERTS, {0: PAGE})
    slabs.begin(0, [3, 4])
    room = slabs.admit(0, 3, PAGE)
    assert room is not None and slabs.admit(0, 4, PAGE) is None
    slabs.drop(0, 3)
    slabs.drop(0, 3)
    assert slabs.find(0, 3) is None
    other = slabs.admit(0, 4, 7)
    assert other is not None and where(other) == (where(room)[0], where(room)[0] + 7)
    assert slabs.admit(0, 3, PAGE) is None


def test_the_same_requests_have_the_same_answers() -> None:
    def answers() -> list[set[int]]:
        slabs = Slabs(40 * PAGE, N_EXPERTS, ROOMS)
        return [fill(slabs, layer, ids) for layer, ids in passes(random.Random(5), 100)]

    first = answers()
    assert first == answers() and any(first)


def test_memory_that_the_system_refuses_is_a_budget_error() -> None:
    with pytest.raises(BudgetError, match=r"The system refused .* of memory for experts"):
        Slabs(1 << 60, 1, {0: 1 << 60})
