from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.memory.arena import Arena
from engine.memory.blocks import most_room
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.rows import StreamedRows
from engine.memory.stream import Stream
from tests.engine.memory.streaming import U8, in_time, random_bytes, tensor, write

MakeStream = Callable[..., Stream]


@pytest.fixture
def make_stream() -> Iterator[MakeStream]:
    """Makes streams, and closes their pools and files."""
    closed: list[ReadPool | ModelFiles] = []

    def make(arena: int, threads: int = 2, **options: object) -> Stream:
        files, pool = ModelFiles(keep_cached=False), ReadPool(threads)
        closed.extend((pool, files))
        return Stream(files, pool, Arena(arena), **{"block_bytes": 1 << 16, **options})

    yield make
    for each in closed:
        each.close()


def walked(stream: Stream, *matrices: StreamedRows) -> list[U8]:
    """All rows of each matrix, copied out of the windows, which must follow each other."""
    found: list[list[U8]] = [[] for _ in matrices]
    for window in stream.walk(matrices):
        assert window.first == sum(len(part) for part in found[0])
        for parts, data in zip(found, window.data, strict=True):
            assert data.flags.c_contiguous or data.ndim == 3
            parts.append(data.copy())
    return [np.concatenate(parts) for parts in found]


def test_a_walk_lends_every_row_in_order(make_stream: MakeStream, tmp_path: Path) -> None:
    data = random_bytes(3_000_000)
    path = write(tmp_path / "山 é", data)
    stream = make_stream(1 << 18)
    first, second = (stream.matrix(tensor(path, offset, 700, 1500)) for offset in (77, 1_200_001))
    for _ in range(3):
        a, b = walked(stream, first, second)
        np.testing.assert_array_equal(a.reshape(-1), data[77 : 77 + 700 * 1500])
        np.testing.assert_array_equal(b.reshape(-1), data[1_200_001 : 1_200_001 + 700 * 1500])


def test_windows_keep_to_the_block_and_are_multiples_of_sixteen_rows(make_stream: MakeStream, tmp_path: Path) -> None:
    path = write(tmp_path / "file", random_bytes(2_000_000))
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


@pytest.mark.parametrize("threads", [1, 3])
def test_random_walks_through_arenas_from_the_smallest_on_give_the_bytes_of_the_file(
    threads: int, make_stream: MakeStream, tmp_path: Path
) -> None:
    data = random_bytes(1_500_000, threads)
    path = write(tmp_path / "file", data)
    draws = np.random.default_rng(threads)

    def work() -> None:
        for _ in range(25):
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
