"""Files that change, reads that fail or hang, and walks that are left in their midst."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import ModelFileError
from engine.memory.raw_file import PAGE
from tests.engine.memory.streaming import (
    U8,
    HangingReads,
    in_time,
    random_bytes,
    tensor,
    write,
)
from tests.engine.memory.walks import BLOCK, MakeStream, check, layers, offsets, walked


@pytest.fixture
def data() -> U8:
    return random_bytes(60 * BLOCK)


@pytest.fixture
def path(data: U8, tmp_path: Path) -> Path:
    return write(tmp_path / "山 é", data)


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
