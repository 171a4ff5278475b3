"""What a stream reads before it is asked for."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.memory.raw_file import PAGE
from tests.engine.memory.streaming import (
    U8,
    HangingReads,
    in_time,
    random_bytes,
    wait_until,
    write,
)
from tests.engine.memory.walks import BLOCK, MakeStream, check, layers, offsets


@pytest.fixture
def data() -> U8:
    return random_bytes(60 * BLOCK)


@pytest.fixture
def path(data: U8, tmp_path: Path) -> Path:
    return write(tmp_path / "山 é", data)


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
