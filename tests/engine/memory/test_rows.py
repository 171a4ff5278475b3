"""Weights lent from disk are judged by those that `WeightStore` reads whole, and that one by the checkpoint's tests."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.formats.index import Span, TensorIndex, TensorInfo
from engine.kernels.plain import PlainOps
from engine.memory.arena import Arena
from engine.memory.meter import Meter
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.rows import ORDERED_AT_ONCE, StreamedRows, can_be_lent, put_in_order
from engine.memory.store import WeightStore
from engine.memory.stream import Stream
from tests.engine.memory.streaming import U8, apart, in_time, random_bytes, stacked, tensor, write

ARENAS = (40_000, 1 << 17, 1 << 22)


def resident(info: TensorInfo) -> U8:
    """The rows of a matrix as the store holds them: uint8 [rows, row_bytes]."""
    with closing(WeightStore(TensorIndex((info.path,), {}, {info.name: info}), PlainOps(), Meter())) as store:
        shape = info.shape if len(info.shape) > 1 else (1, *info.shape)
        rows = int(np.prod(shape[:-1]))
        return store.matrix(info.name, rows, shape[-1]).weight.data if len(shape) == 2 else whole_stack(store, info)


def whole_stack(store: WeightStore, info: TensorInfo) -> U8:
    n, rows, columns = info.shape
    return store.experts(info.name, n, (rows,), columns)[0].weight.data


@contextmanager
def streaming(arena: int, **options: int) -> Iterator[Stream]:
    files, pool = ModelFiles(keep_cached=False), ReadPool(2)
    try:
        yield Stream(files, pool, Arena(arena), **{"block_bytes": 30_000, **options})
    finally:
        pool.close()
        files.close()


def walk(stream: Stream, lent: StreamedRows) -> U8:
    return np.concatenate([window.data[0].copy() for window in stream.walk([lent])])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "weights", random_bytes(1_000_000))


KINDS = (
    "plain",
    "split heads",
    "runs",
    "column runs",
    "one row",
    "one row in runs",
    "wide",
    "narrow",
    "runs in one page",
    "runs in one page, the last first",
    "runs in one page, backwards",
)


def matrices(path: Path) -> dict[str, TensorInfo]:
    plain = tensor(path, 13, 96, 1024)
    return {
        "plain": plain,
        "split heads": replace(plain, split_heads=6),
        "runs": replace(plain, runs=((40, 64), (0, 40), (70, 96), (64, 70))),
        "column runs": replace(plain, column_runs=((100, 512), (0, 30), (30, 100))),
        "one row": TensorInfo("v", (300,), "F16", path, 99, 600),
        "one row in runs": TensorInfo("v", (300,), "F16", path, 99, 600, runs=((200, 300), (0, 200))),
        "wide": tensor(path, 777_777, 3, 20_000),
        "narrow": tensor(path, 5, 5000, 6),
        "runs in one page": replace(tensor(path, 4096, 4, 512), runs=((0, 1), (2, 3), (1, 2), (3, 4))),
        "runs in one page, the last first": replace(tensor(path, 8192, 8, 512), runs=((7, 8), (0, 7))),
        "runs in one page, backwards": replace(
            tensor(path, 4000, 40, 60), runs=tuple((row, row + 1) for row in reversed(range(40)))
        ),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_whole_matrix(kind: str, path: Path) -> None:
    info = matrices(path)[kind]
    expected = resident(info)

    def work() -> None:
        for arena in ARENAS:
            with streaming(arena) as stream:
                lent = stream.matrix(info)
                for _ in range(2):
                    np.testing.assert_array_equal(walk(stream, lent), expected)
                ids = [0, len(expected) - 1, 1 % len(expected), 0, *range(0, len(expected), 7)]
                np.testing.assert_array_equal(stream.rows(lent, ids), expected[ids])
                assert stream.rows(lent, []).shape == (0, expected.shape[1])
                held = len(expected) // 32 * 16
                partly = stream.matrix(info, held=expected[:held])
                np.testing.assert_array_equal(walk(stream, partly), expected)
                np.testing.assert_array_equal(stream.rows(partly, ids), expected[ids])

    in_time(work)


def test_parts_of_a_fused_matrix_are_rows_of_it(path: Path) -> None:
    for name in ("plain", "split heads", "runs", "column runs"):
        info = matrices(path)[name]
        expected = resident(info)
        with streaming(40_000) as stream:
            parts = [stream.matrix(info, start=start, rows=rows) for start, rows in ((0, 48), (48, 16), (64, 32))]
            np.testing.assert_array_equal(np.concatenate([walk(stream, part) for part in parts]), expected)
            np.testing.assert_array_equal(stream.rows(parts[1], [3, 0]), expected[[51, 48]])
            assert [part.rows for part in parts] == [48, 16, 32]


@pytest.mark.parametrize("arena", ARENAS)
def test_matrices_of_stacks_are_lent_whole(arena: int, path: Path) -> None:
    other = write(path.with_name("other"), random_bytes(200_000, 1))
    stacks = [
        stacked(path, 300_001, 7, 10, 600),
        apart([(path, 40_000), (path, 46_000), (other, 100_001), (path, 10), (path, 6010)], 10, 600),
    ]

    def work() -> None:
        with streaming(arena) as stream:
            for info in stacks:
                n, expected = info.shape[0], resident(info)
                np.testing.assert_array_equal(walk(stream, stream.stack(info, n)), expected)
                partly = stream.stack(info, n, held=expected[:2])
                np.testing.assert_array_equal(walk(stream, partly), expected)
                flat = replace(info, shape=(n * 10, 300))
                first, second = stream.stack(flat, n, rows=4), stream.stack(flat, n, start=4)
                both = stream.stack(flat, n, start=4, rows=4)
                for window in stream.walk([first, both, first]):
                    stop = window.first + len(window.data[0])
                    for data, start in zip(window.data, (0, 4, 0), strict=True):
                        np.testing.assert_array_equal(data, expected[window.first : stop, start : start + 4])
                np.testing.assert_array_equal(walk(stream, second), expected[:, 4:])

    in_time(work)


@pytest.mark.parametrize("arena", ARENAS)
def test_rows_of_experts_are_lent_by_expert(arena: int, path: Path) -> None:
    other = write(path.with_name("other"), random_bytes(200_000, 1))
    both = stacked(path, 500_007, 5, 20, 600)
    down = apart([(path, 40_000), (other, 100_001), (path, 10), (path, 200_001), (other, 3)], 30, 200)

    def work() -> None:
        with streaming(arena, block_bytes=9000) as stream:
            expected = [resident(both)[:, :10], resident(both)[:, 10:], resident(down)]
            gate, up = stream.stack(both, 5, rows=10), stream.stack(both, 5, start=10)
            for held in (None, expected[2][:2]):
                lent = stream.stack(down, 5, held=held)
                found = [np.zeros_like(each) for each in expected]
                order = []
                for window in stream.experts(gate, up, lent, [0, 1, 4]):
                    order.append((window.expert, window.down, window.first))
                    for data, into in zip(window.data, found[2:] if window.down else found[:2], strict=True):
                        into[window.expert, window.first : window.first + len(data)] = data
                assert order == sorted(order) and {expert for expert, _, _ in order} == {0, 1, 4}
                for made, whole in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(made[[0, 1, 4]], whole[[0, 1, 4]])
                    assert not made[2:4].any()

    in_time(work)


def test_what_cannot_be_lent_in_rows_is_told_beforehand(path: Path) -> None:
    plain = tensor(path, 0, 96, 1024)
    assert can_be_lent(plain) and can_be_lent(replace(plain, runs=((40, 96), (0, 40))), 3, 5)
    for info in (replace(plain, transposed=True), replace(plain, shift=1.0), replace(plain, logarithms=True)):
        assert not can_be_lent(info)
        with streaming(ARENAS[0]) as stream, pytest.raises(ValueError, match="cannot be lent"):
            stream.matrix(info)
    heads = replace(plain, split_heads=6)
    assert can_be_lent(heads) and can_be_lent(heads, 16, 32)
    assert not can_be_lent(heads, 8, 16) and not can_be_lent(heads, 0, 24)
    spans = (Span(path, 0, 600),) * 3
    assert not can_be_lent(TensorInfo("s", (3, 10, 30), "F16", path, 0, 1800, column_runs=((0, 30),), pieces=spans))


def test_held_rows_are_whole_heads_of_the_right_width(path: Path) -> None:
    heads = replace(tensor(path, 0, 96, 1024), split_heads=6)
    with streaming(ARENAS[0]) as stream:
        for held in (np.zeros((8, 1024), np.uint8), np.zeros((16, 1000), np.uint8)):
            with pytest.raises(ValueError, match="held rows"):
                stream.matrix(heads, held=held)


def test_putting_in_order_needs_little_memory_and_is_the_same_for_any_part() -> None:
    rows, columns = 64, ORDERED_AT_ONCE // 16
    data = random_bytes(rows * columns * 2)
    info = TensorInfo("w", (rows, columns), "F16", Path("w"), 0, data.size, split_heads=4)
    whole = data.copy()
    put_in_order(whole, info)
    halves = data.reshape(4, 2, 8, -1).swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(whole, halves)
    columns_moved = replace(info, split_heads=0, column_runs=((7, columns), (0, 7)))
    whole = data.copy()
    put_in_order(whole, columns_moved)
    np.testing.assert_array_equal(whole.reshape(rows, -1), np.roll(data.reshape(rows, -1), -14, axis=1))


def test_rows_out_of_order_are_brought_together_without_a_second_copy_of_them(path: Path) -> None:
    """The arena is all that is planned for them."""
    rows = 400
    info = replace(tensor(path, 4096, rows, 1000), runs=((200, rows), (1, 200), (0, 1)))
    expected = resident(info)
    with streaming(4 * info.nbytes, block_bytes=info.nbytes) as stream:
        lent = stream.matrix(info)
        np.testing.assert_array_equal(walk(stream, lent), expected)
        tracemalloc.start()
        rows_of_windows = [len(window.data[0]) for window in stream.walk([lent])]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert rows_of_windows == [rows] and peak < info.nbytes / 4
