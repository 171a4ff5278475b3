from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.buffers import in_large_pages
from engine.kernels.native import NativeOps, library
from engine.kernels.plain import PlainOps
from engine.memory import floors
from engine.memory.floors import measure_floors, multiply_adds, read
from tests.engine.kernels.test_native import runnable

Probe = tuple[object, int]
"""A library and a pool."""


@pytest.fixture(params=[(isa, threads) for isa in runnable() for threads in (1, 2, 3)], ids=lambda p: f"{p[0]}-{p[1]}")
def probe(request: pytest.FixtureRequest) -> Iterator[Probe]:
    isa, threads = request.param
    _, lib = library.load(isa)
    pool = lib.ms_pool_new(threads)
    yield lib, pool
    lib.ms_pool_free(pool)


@pytest.mark.parametrize("vectors", [0, 1, 3, 4, 7, 1000, 65536, 65537, 200_003])
def test_reading_reads_every_byte(probe: Probe, vectors: int) -> None:
    buffer = in_large_pages(vectors * 32)
    buffer[:] = np.random.default_rng(vectors).integers(0, 256, buffer.size, np.uint8)
    assert read(*probe, buffer) == int(np.bitwise_xor.reduce(buffer.view(np.uint64), initial=np.uint64(0)))


def sums(rounds: int, count: int) -> np.ndarray:
    """The multiply-adds in numpy: int32 [count, 8] after so many rounds, each adding 2 · its lower half − its upper."""
    values = np.arange(1, 9, dtype=np.int32) + np.arange(count, dtype=np.int32)[:, None]
    for _ in range(rounds):
        low, high = values.astype(np.int16).astype(np.int32), values >> 16
        values = values + 2 * low - high
    return values


@pytest.mark.parametrize("rounds", [1, 2, 100, 4096])
def test_multiplying_leaves_nothing_out(probe: Probe, rounds: int) -> None:
    done, mixed = multiply_adds(*probe, rounds)
    count = done // (16 * rounds)
    assert done == rounds * count * 16 and count >= 4
    assert mixed == int(np.bitwise_xor.reduce(sums(rounds, count).view(np.uint64), axis=None))
    assert mixed != 0


def test_the_floors_of_native_kernels_are_told_and_memory_is_given_back() -> None:
    ops = NativeOps(2)
    told = measure_floors(ops)
    ops.close()
    assert told is not None and told.read_bandwidth is not None
    assert told.read_bandwidth > 0 and told.multiply_adds > 0


def test_kernels_that_are_not_native_have_no_floors() -> None:
    assert measure_floors(PlainOps()) is None


def test_where_memory_is_short_no_bandwidth_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(floors, "SECONDS", 0.001)
    ops = NativeOps(1)
    monkeypatch.setattr(floors, "in_large_pages", refuse)
    refused = measure_floors(ops)
    monkeypatch.setattr(floors, "free_memory", lambda: 4 * floors.LEAST - 1)
    short = measure_floors(ops)
    ops.close()
    for told in (refused, short):
        assert told is not None and told.read_bandwidth is None and told.multiply_adds > 0


def test_no_more_memory_is_taken_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def take(nbytes: int) -> np.ndarray:
        taken.append(nbytes)
        return in_large_pages(nbytes)

    monkeypatch.setattr(floors, "SECONDS", 0.001)
    monkeypatch.setattr(floors, "in_large_pages", take)
    ops = NativeOps(1)
    room = floors.LEAST + floors.LARGE_PAGE
    within, short = measure_floors(ops, room), measure_floors(ops, room - 1)
    ops.close()
    assert taken == [floors.LEAST]
    assert within is not None and within.read_bandwidth and short is not None and short.read_bandwidth is None
