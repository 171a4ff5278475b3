from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import BudgetError, ModelFileError
from engine.memory.arena import Arena
from engine.memory.blocks import most_room
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.rows import StreamedRows
from engine.memory.stream import Stream
from tests.engine.memory.streaming import (
    U8,
    HangingReads,
    cached_pages,
    hanging_reads,
    in_time,
    random_bytes,
    tensor,
    wait_until,
    write,
)

MakeStream = Callable[..., Stream]
BLOCK = 16 * PAGE


@pytest.fixture
def make_stream() -> Iterator[MakeStream]:
    """Makes streams, and closes their pools and files."""
    closed: list[ReadPool | ModelFiles] = []

    def make(arena: int, threads: int = 2, **options: object) -> Stream:
        files, pool = ModelFiles(keep_cached=False), ReadPool(threads)
        closed.extend((pool, files))
        return Stream(files, pool, Arena(arena), **{"block_bytes": BLOCK, **options})

    yield make
    for each in closed:
        each.close()


@pytest.fixture
def data() -> U8:
    return random_bytes(60 * BLOCK)


@pytest.fixture
def path(data: U8, tmp_path: Path) -> Path:
    return write(tmp_path / "山 é", data)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingReads]:
    with hanging_reads(tmp_path, monkeypatch) as hanging:
        yield hanging


def layers(stream: Stream, path: Path, count: int, blocks: int = 4) -> list[StreamedRows]:
    """Matrices on pages' boundaries, one after the other, of so many blocks each; a row is a page."""
    return [stream.matrix(tensor(path, number * blocks * BLOCK, 16 * blocks, PAGE)) for number in range(count)]


def offsets(layer: StreamedRows) -> set[int]:
    return set(range(layer.info.offset, layer.info.offset + layer.info.nbytes, BLOCK))


def walked(stream: Stream, *matrices: StreamedRows) -> list[U8]:
    """All rows of each matrix, copied out of the windows, which must follow each other."""
    found: list[list[U8]] = [[] for _ in matrices]
    for window in stream.walk(matrices):
        assert window.first == sum(len(part) for part in found[0])
        for parts, lent in zip(found, window.data, strict=True):
            assert lent.flags.c_contiguous
            parts.append(lent.copy())
    return [np.concatenate(parts) for parts in found]


def check(stream: Stream, layer: StreamedRows, data: U8) -> None:
    """That a walk gives the layer's bytes."""
    offset, nbytes = layer.info.offset, layer.info.nbytes
    np.testing.assert_array_equal(walked(stream, layer)[0].reshape(-1), data[offset : offset + nbytes])


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


def test_what_followed_what_is_read_before_it_is_asked_for(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(8 * BLOCK)
        a, b, c = layers(stream, path, 3)
        check(stream, a, data)
        assert set(reads.reads) == offsets(a)
        check(stream, b, data)
        check(stream, c, data)
        assert len(reads.reads) == 12  # nothing is known yet of what follows
        check(stream, a, data)
        wait_until(lambda: len(reads.reads) == 24)
        assert set(reads.reads[12:]) == offsets(a) | offsets(b) | offsets(c)
        wait_until(lambda: stream.counts.read == 24 * BLOCK)
        before = stream.counts
        check(stream, b, data)
        assert (stream.counts - before).ready == (stream.counts - before).windows == 4
        check(stream, c, data)
        wait_until(lambda: len(reads.reads) == 12 + 12 + 8)
        assert sorted(reads.reads[24:]) == sorted(offsets(a) | offsets(b))

    in_time(work)


def test_an_expected_order_needs_no_first_pass(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(9 * BLOCK)
        a, b, _ = layers(stream, path, 3)
        stream.expect([[a], [b]])
        check(stream, a, data)
        wait_until(lambda: set(reads.reads) == offsets(a) | offsets(b))

    in_time(work)


def test_an_arena_holds_what_is_in_use_and_as_many_more_as_it_has_room_for(
    make_stream: MakeStream, path: Path, reads: HangingReads
) -> None:
    def work() -> None:
        for depth in (1, 2, 5):
            stream = make_stream((depth + 1) * BLOCK + 4 * PAGE, threads=1)
            (layer,) = layers(stream, path, 1, blocks=12)
            reads.reads.clear()
            with closing(stream.walk([layer])) as windows:
                for number in range(3):
                    next(windows)
                    wait_until(lambda number=number, depth=depth: len(reads.reads) == number + 1 + depth)
                    time.sleep(0.01)
                    assert len(reads.reads) == number + 1 + depth
            assert stream.counts.peak == (depth + 1) * BLOCK

    in_time(work)


def test_too_small_an_arena_is_refused_with_the_least_that_works(make_stream: MakeStream, path: Path) -> None:
    stream = make_stream(2 * PAGE)
    wide = stream.matrix(tensor(path, 100, 3, 2 * PAGE))
    with pytest.raises(BudgetError, match=r"8\.2 kB .* at least 12\.3 kB"):
        walked(stream, wide)
    with pytest.raises(BudgetError, match=r"at least 12\.3 kB"):
        stream.rows(wide, [0])
    walked(stream, stream.matrix(tensor(path, 0, 3, 2 * PAGE)))


def test_another_order_than_foreseen_is_followed_and_learnt(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(6 * BLOCK)
        a, b, head = layers(stream, path, 3)
        for _ in range(2):
            for layer in (a, b, head):
                check(stream, layer, data)
        for _ in range(3):  # chunks of a prefill, without the head
            for layer in (a, b):
                check(stream, layer, data)
        check(stream, head, data)  # a side job
        check(stream, a, data)
        before = stream.counts
        for layer in (b, a, b, a):
            check(stream, layer, data)
        assert (stream.counts - before).lent == 16 * BLOCK
        reads.reads.clear()
        check(stream, b, data)
        check(stream, a, data)
        assert not set(reads.reads) & offsets(head)

    in_time(work)


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


def test_rows_between_passes_cost_nothing_that_was_read_ahead(make_stream: MakeStream, path: Path, data: U8) -> None:
    stream = make_stream(5 * BLOCK)
    a, b, table = layers(stream, path, 3)
    for turn in range(6):
        rows = [turn, 60 - turn]
        expected = data[table.info.offset :].reshape(-1, PAGE)[rows]
        np.testing.assert_array_equal(stream.rows(table, rows), expected)
        check(stream, a, data)
        check(stream, b, data)
    before = stream.counts
    for turn in range(10):
        stream.rows(table, [turn, 63 - turn])
        check(stream, a, data)
        check(stream, b, data)
    # But for what is ahead at either end, each byte is read once a pass.
    assert abs((stream.counts - before).read - 10 * (8 * BLOCK + 2 * PAGE)) <= 4 * BLOCK


def test_a_file_that_changes_in_the_midst_of_a_walk_is_refused(make_stream: MakeStream, path: Path) -> None:
    def work() -> None:
        stream = make_stream(3 * BLOCK)
        (layer,) = layers(stream, path, 1, blocks=12)
        with pytest.raises(ModelFileError, match=r"山 é was changed while in use, so that tensor w0"):
            for window in stream.walk([layer]):
                if window.first == 32:
                    with open(path, "r+b") as file:
                        file.write(b"?")
        with pytest.raises(ModelFileError, match="changed"):
            stream.rows(layer, [0])
        other = make_stream(3 * BLOCK)
        walked(other, *layers(other, path, 1))

    in_time(work)


def test_a_file_that_shrinks_in_the_midst_of_a_walk_is_refused(make_stream: MakeStream, path: Path) -> None:
    def work() -> None:
        stream = make_stream(3 * BLOCK)
        (layer,) = layers(stream, path, 1, blocks=12)
        with pytest.raises(ModelFileError, match=r"山 é"):
            for window in stream.walk([layer]):
                if window.first == 32:
                    with open(path, "r+b") as file:
                        file.truncate(5 * BLOCK)

    in_time(work)


def test_a_file_that_is_deleted_in_the_midst_of_a_walk_is_read_on(
    make_stream: MakeStream, path: Path, data: U8
) -> None:
    stream = make_stream(3 * BLOCK)
    a, b = layers(stream, path, 2)
    check(stream, a, data)
    path.unlink()
    write(path, random_bytes(len(data), 9))
    check(stream, b, data)
    check(stream, a, data)


def test_a_read_that_fails_is_told_when_its_turn_comes_and_can_be_tried_again(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(4 * BLOCK)
        a, b = layers(stream, path, 2, blocks=6)
        check(stream, a, data)
        reads.fails = lambda offset: offset == b.info.offset + 3 * BLOCK
        for _ in range(2):
            seen = []
            with pytest.raises(ModelFileError, match="Input/output error"):
                for window in stream.walk([b]):
                    seen.append(window.first)
            assert seen == [0, 16, 32]
        check(stream, a, data)
        with pytest.raises(ModelFileError, match="Input/output error"):
            stream.rows(b, [3 * 16])
        reads.fails = lambda offset: False
        check(stream, b, data)
        np.testing.assert_array_equal(stream.rows(b, [48])[0], data[b.info.offset :][48 * PAGE : 49 * PAGE])

    in_time(work)


def test_a_walk_can_be_left_and_another_begun(make_stream: MakeStream, path: Path, data: U8) -> None:
    def work() -> None:
        stream = make_stream(3 * BLOCK)
        a, b = layers(stream, path, 2)
        with closing(stream.walk([a])) as windows:
            next(windows)
        check(stream, a, data)
        left = stream.walk([a])
        next(left)
        check(stream, b, data)
        with pytest.raises(RuntimeError, match="before this was closed"):
            next(left)
        with pytest.raises(ZeroDivisionError):
            for window in stream.walk([b]):
                window.first / 0
        check(stream, b, data)

    in_time(work)


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_a_read_that_hangs_can_be_left(
    how: str, make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(8 * BLOCK)
        a, b = layers(stream, path, 2)
        reads.which = lambda offset: offset == BLOCK
        cancel = stream.cancel = Cancel()

        def breaks() -> None:
            reads.hung.acquire()
            time.sleep(0.05)
            cancel.set() if how == "cancel" else stream.stop()

        threading.Thread(target=breaks, daemon=True).start()
        seen = []
        with pytest.raises(Cancelled):
            for window in stream.walk([a]):
                seen.append(window.first)
        assert seen == [0]
        assert stream.counts.stalled >= 0.04
        reads.which = lambda offset: False
        for _ in range(2):
            with pytest.raises(Cancelled):
                check(stream, b, data)
            with pytest.raises(Cancelled):
                stream.rows(b, [0])
        stream.cancel = None
        if how == "stop":
            with pytest.raises(Cancelled):
                check(stream, b, data)
            return
        for _ in range(3):  # the other thread reads on, round what the first may still write to
            check(stream, b, data)
            check(stream, a, data)
        reads.let_go()
        check(stream, a, data)

    in_time(work)


def test_what_no_thread_has_begun_is_not_read_once_it_is_given_up(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(8 * BLOCK, threads=1)
        a, b = layers(stream, path, 2)
        reads.which = lambda offset: offset == 0
        cancel = stream.cancel = Cancel()

        def breaks() -> None:
            reads.hung.acquire()
            cancel.set()

        threading.Thread(target=breaks, daemon=True).start()
        with pytest.raises(Cancelled):
            walked(stream, a)
        reads.let_go()
        stream.cancel = None
        check(stream, b, data)
        assert set(reads.reads) == {0} | offsets(b)

    in_time(work)


def test_rows_do_not_wait_for_what_is_read_ahead(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(16 * BLOCK, threads=1)
        a, b, table = layers(stream, path, 3)
        stream.expect([[a], [b]])
        reads.which = lambda offset: offset == b.info.offset
        check(stream, a, data)
        reads.hung.acquire()  # and all that is read ahead behind it waits
        reads.reads.clear()
        threading.Timer(0.1, reads.let_go).start()
        stream.rows(table, [0])
        assert reads.reads[0] == table.info.offset

    in_time(work)


def test_room_that_a_hanging_read_may_write_to_is_waited_for_and_that_can_be_left_too(
    make_stream: MakeStream, path: Path, reads: HangingReads, data: U8
) -> None:
    def work() -> None:
        stream = make_stream(BLOCK, block_bytes=BLOCK)
        wide = stream.matrix(tensor(path, 0, 4, BLOCK))
        reads.which = lambda offset: offset == BLOCK
        for _ in range(2):
            cancel = stream.cancel = Cancel()
            threading.Timer(0.05, cancel.set).start()
            with pytest.raises(Cancelled):
                walked(stream, wide)
        reads.which = lambda offset: False
        stream.cancel = None
        threading.Timer(0.05, reads.let_go).start()
        check(stream, wide, data)

    in_time(work)


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
