"""Walks over matrices on disk, and rows of them: which bytes they lend, and what is read for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BudgetError
from engine.memory.blocks import most_room
from engine.memory.raw_file import PAGE
from tests.engine.memory.streaming import (
    U8,
    HangingReads,
    cached_pages,
    in_time,
    random_bytes,
    tensor,
    write,
)
from tests.engine.memory.walks import BLOCK, MakeStream, check, layers, walked


@pytest.fixture
def data() -> U8:
    return random_bytes(60 * BLOCK)


@pytest.fixture
def path(data: U8, tmp_path: Path) -> Path:
    return write(tmp_path / "山 é", data)


def test_a_walk_lends_every_row_of_all_its_matrices_in_order(make_stream: MakeStream, path: Path, data: U8) -> None:
    stream = make_stream(1 << 18)
    first, second = (stream.matrix(tensor(path, offset, 700, 1500)) for offset in (77, 1_200_001))
    for _ in range(3):
        a, b = walked(stream, first, second)
        np.testing.assert_array_equal(a.reshape(-1), data[77 : 77 + 700 * 1500])
        np.testing.assert_array_equal(b.reshape(-1), data[1_200_001 : 1_200_001 + 700 * 1500])
    with pytest.raises(ValueError, match="same number of rows"):
        walked(stream, first, stream.matrix(tensor(path, 0, 701, 1500)))


def test_windows_keep_to_the_block_and_are_multiples_of_sixteen_rows(make_stream: MakeStream, path: Path) -> None:
    matrices = [tensor(path, 0, 1000, 600), tensor(path, 700_000, 1000, 400)]

    def sizes(**options: object) -> list[int]:
        stream = make_stream(1 << 20, **options)
        lent = [stream.matrix(info) for info in matrices]
        return [len(window.data[0]) for window in stream.walk(lent)]

    assert max(sizes(block_bytes=100_000)) * 1000 <= 100_000
    assert all(rows % 16 == 0 for rows in sizes(block_bytes=100_000)[:-1])
    assert sizes(block_bytes=15_000)[:3] == [15, 15, 15]
    assert set(sizes(block_bytes=1)) == {1}
    assert sizes(block_bytes=100_000, block_rows=32)[:3] == [32, 32, 32]


def test_pages_are_read_once_a_walk_however_rows_lie_in_them(make_stream: MakeStream, path: Path) -> None:
    for block_bytes in (BLOCK, 10_000, 1000):
        stream = make_stream(1 << 20, block_bytes=block_bytes)
        lent = [stream.matrix(tensor(path, offset, 300, 700)) for offset in (77, 500_001)]
        for pair in (lent, lent[::-1]):  # of which nothing is foreseen
            before = stream.counts
            walked(stream, *pair)
            done = stream.counts - before
            assert done.lent == 2 * 210_000
            # Nothing beyond the pages that a matrix begins and ends in.
            assert done.read == sum(
                (end + PAGE - 1) // PAGE * PAGE - start // PAGE * PAGE
                for start, end in ((77, 210_077), (500_001, 710_001))
            )


def test_matrices_that_follow_each_other_are_read_together(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    stream = make_stream(1 << 20)
    lent = [stream.matrix(tensor(path, 100 + number * 7000, 10, 700)) for number in range(3)]
    for part, number in zip(walked(stream, *lent), range(3), strict=True):
        np.testing.assert_array_equal(part.reshape(-1), data[100 + number * 7000 : 7100 + number * 7000])
    assert reads.reads == [0]


def test_too_small_an_arena_is_refused_with_the_least_that_works(make_stream: MakeStream, path: Path) -> None:
    stream = make_stream(2 * PAGE)
    wide = stream.matrix(tensor(path, 100, 3, 2 * PAGE))
    with pytest.raises(BudgetError, match=r"8\.2 kB .* at least 12\.3 kB"):
        walked(stream, wide)
    with pytest.raises(BudgetError, match=r"at least 12\.3 kB"):
        stream.rows(wide, [0])
    walked(stream, stream.matrix(tensor(path, 0, 3, 2 * PAGE)))


@pytest.mark.parametrize("threads", [1, 3])
def test_random_walks_through_arenas_from_the_smallest_on_give_the_bytes_of_the_file(
    threads: int, make_stream: MakeStream, tmp_path: Path
) -> None:
    data = random_bytes(1_500_000, threads)
    path = write(tmp_path / "file", data)
    draws = np.random.default_rng(threads)

    def work() -> None:
        for _ in range(12):
            widths = [int(draws.integers(1, 3000)) * 2 for _ in range(6)]
            rows = [int(draws.integers(1, 240)) for _ in range(3) for _ in range(2)]
            rows[1::2] = rows[::2]
            least = max(most_room(a) + most_room(b) for a, b in zip(widths[::2], widths[1::2], strict=True))
            stream = make_stream(
                int(least * draws.choice([1, 1, 2, 3, 10])), threads, block_bytes=int(draws.integers(1, 80_000))
            )
            infos, expected = [], []
            for width, count in zip(widths, rows, strict=True):
                count = min(count, data.size // width)
                offset = int(draws.integers(0, data.size - width * count + 1))
                infos.append((offset, count, width))
            for at in range(0, 6, 2):  # the two of a pair have the same number of rows
                count = min(infos[at][1], infos[at + 1][1])
                infos[at : at + 2] = [(offset, count, width) for offset, _, width in infos[at : at + 2]]
            lent = []
            for offset, count, width in infos:
                whole = data[offset : offset + count * width].reshape(count, width)
                held = int(draws.choice([0, 0, count // 3, count]))
                lent.append(stream.matrix(tensor(path, offset, count, width), held=whole[:held].copy()))
                expected.append(whole)
            for _ in range(12):
                pair = int(draws.integers(0, 3)) * 2
                if draws.random() < 0.2:
                    ids = draws.integers(0, len(expected[pair]), int(draws.integers(1, 20))).tolist()
                    np.testing.assert_array_equal(stream.rows(lent[pair], ids), expected[pair][ids])
                elif draws.random() < 0.2:
                    with closing(stream.walk(lent[pair : pair + 2])) as windows:
                        next(windows)
                else:
                    found = walked(stream, *lent[pair : pair + 2])
                    np.testing.assert_array_equal(found[0], expected[pair])
                    np.testing.assert_array_equal(found[1], expected[pair + 1])

    in_time(work)


def test_rows_are_read_together_where_they_lie_together_and_each_once(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    stream = make_stream(1 << 20)
    table = stream.matrix(tensor(path, 0, 1000, 600))
    expected = data[:600_000].reshape(1000, 600)
    ids = [5, 900, 5, 6, 8, 7, 901, 300, 5]
    np.testing.assert_array_equal(stream.rows(table, ids), expected[ids])
    assert sorted(reads.reads) == [0, 300 * 600 // PAGE * PAGE, 900 * 600 // PAGE * PAGE]
    assert stream.counts.read == 6 * PAGE
    ids = list(range(999, -1, -1))
    np.testing.assert_array_equal(make_stream(3 * PAGE).rows(table, []), expected[:0])
    small = make_stream(3 * PAGE)
    np.testing.assert_array_equal(small.rows(small.matrix(tensor(path, 0, 1000, 600)), ids), expected[ids])
    for wrong in (-1, 1000):
        with pytest.raises(IndexError, match="1000 rows"):
            stream.rows(table, [0, wrong])


def test_nothing_is_left_in_the_systems_cache(make_stream: MakeStream, path: Path, data: U8) -> None:
    stream = make_stream(1 << 20)
    for layer in layers(stream, path, 3):
        check(stream, layer, data)
    stream.rows(layers(stream, path, 1)[0], list(range(0, 64, 5)))
    assert cached_pages(path) == 0


def test_the_same_bytes_come_with_any_number_of_threads_and_any_blocks(
    make_stream: MakeStream, path: Path, data: U8
) -> None:
    def work() -> None:
        for threads in (1, 2, 5):
            for block_bytes in (1, 5000, BLOCK, 1 << 20):
                stream = make_stream(300_000, threads, block_bytes=block_bytes)
                for _ in range(2):
                    check(stream, stream.matrix(tensor(path, 1234, 900, 222)), data)

    in_time(work)
