from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BudgetError, ModelFileError
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile, ReadPool
from tests.engine.memory.streaming import (
    U8,
    cached_pages,
    hanging_reads,
    in_time,
    page_room,
    random_bytes,
    wait_until,
    write,
)

SIZE = 40 * PAGE + 123


@pytest.fixture
def data() -> U8:
    return random_bytes(SIZE)


@pytest.fixture
def path(data: U8, tmp_path: Path) -> Path:
    return write(tmp_path / "山 é.gguf", data)


@pytest.fixture
def pool() -> Iterator[ReadPool]:
    pool = ReadPool(2)
    yield pool
    pool.close()


def uncached(path: Path) -> ModelFile:
    """Past the system's cache, which the file system of the tests must be able to do."""
    file = ModelFile(path, keep_cached=False)
    if not file.direct:
        pytest.skip("this file system reads through its cache alone")
    return file


def whole(file: ModelFile) -> U8:
    into = np.empty(SIZE, np.uint8)
    file.read(into, 0, "w")
    return into


@pytest.mark.parametrize("keep_cached", [True, False])
def test_bytes_at_any_offset_are_read(keep_cached: bool, path: Path, data: U8) -> None:
    file = ModelFile(path, keep_cached=keep_cached)
    np.testing.assert_array_equal(whole(file), data)
    into = np.empty(1001, np.uint8)
    file.read(into, 4097, "w")
    np.testing.assert_array_equal(into, data[4097 : 4097 + 1001])


@pytest.mark.parametrize("keep_cached", [True, False])
def test_pages_are_read_to_the_end_of_a_file_that_does_not_end_with_one(
    keep_cached: bool, path: Path, data: U8
) -> None:
    file = ModelFile(path, keep_cached=keep_cached)
    room = page_room(3 * PAGE)
    assert file.read_pages(room.data, 5 * PAGE, "w", 1) == 3 * PAGE
    np.testing.assert_array_equal(room, data[5 * PAGE : 8 * PAGE])
    assert file.read_pages(room.data, 39 * PAGE, "w", PAGE + 123) == PAGE + 123
    np.testing.assert_array_equal(room[: PAGE + 123], data[39 * PAGE :])
    with pytest.raises(ModelFileError, match=f"山 é.gguf ends inside tensor w, at byte {SIZE}"):
        file.read_pages(room.data, 39 * PAGE, "w", PAGE + 124)


def test_what_is_not_to_be_kept_leaves_nothing_in_the_cache(path: Path) -> None:
    file = uncached(path)
    whole(file)
    room = page_room(8 * PAGE)
    for offset in range(0, SIZE, room.size):
        file.read_pages(room.data, offset, "w", 1)
    assert cached_pages(path) == 0
    whole(ModelFile(path))
    assert cached_pages(path) > 30


def test_where_reads_cannot_go_past_the_cache_what_they_leave_there_is_dropped(path: Path, data: U8) -> None:
    file = uncached(path)
    room = page_room(9 * PAGE)[8 : 8 + 8 * PAGE]  # which direct reads are refused for
    for offset in range(0, SIZE, room.size):
        done = file.read_pages(room.data, offset, "w", 1)
        np.testing.assert_array_equal(room[:done], data[offset : offset + room.size])
    assert not file.direct
    assert cached_pages(path) == 0


def test_file_systems_in_memory_are_read_as_well(data: U8) -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no file system in memory")
    path = folder / f"millstream-{os.getpid()}"
    try:
        file = ModelFile(write(path, data), keep_cached=False)
        room = page_room(2 * PAGE)
        file.read_pages(room.data, PAGE, "w", 1)
        np.testing.assert_array_equal(room, data[PAGE : 3 * PAGE])
        np.testing.assert_array_equal(whole(file), data)
    finally:
        path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, SIZE - 1)


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"?")


def append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"?")


@pytest.mark.parametrize("change", [truncate, overwrite, append])
@pytest.mark.parametrize("keep_cached", [True, False])
def test_a_file_that_is_written_to_is_refused_from_then_on(
    change: Callable[[Path], None], keep_cached: bool, path: Path
) -> None:
    file = ModelFile(path, keep_cached=keep_cached)
    room = page_room(PAGE)
    file.read_pages(room.data, 0, "w", 1)
    change(path)
    with pytest.raises(ModelFileError, match=r"山 é\.gguf was changed while in use, so that tensor blk"):
        file.read_pages(room.data, 0, "blk", 1)
    for _ in range(2):
        with pytest.raises(ModelFileError, match=r"山 é\.gguf was changed while in use"):
            whole(file)
    if change is truncate:
        with pytest.raises(ModelFileError, match="changed while in use"):
            file.read_pages(room.data, 40 * PAGE, "w", 123)


def rename_over(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(SIZE))
    os.replace(other, path)


@pytest.mark.parametrize("change", [rename_over, Path.unlink])
def test_a_file_that_lost_its_name_goes_on_being_read(change: Callable[[Path], None], path: Path, data: U8) -> None:
    file = ModelFile(path, keep_cached=False)
    change(path)
    np.testing.assert_array_equal(whole(file), data)
    room = page_room(PAGE)
    file.read_pages(room.data, 7 * PAGE, "w", PAGE)
    np.testing.assert_array_equal(room, data[7 * PAGE : 8 * PAGE])


def test_what_is_no_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # a socket's name has room for few letters
        listener.bind("socket")
        for name, kind in (("fifo", "a pipe"), (".", "a folder"), ("/dev/zero", "a device")):

            def refuse(name: str = name, kind: str = kind) -> None:
                with pytest.raises(ModelFileError, match=f"is {kind}, not a file: choose the model's file"):
                    ModelFile(tmp_path / name)

            in_time(refuse)
        with pytest.raises(ModelFileError, match=r"Cannot open .*socket: "):
            ModelFile(tmp_path / "socket")


def test_what_cannot_be_opened_is_named_with_the_reason(path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"Cannot open .*missing: No such file"):
        ModelFile(path.with_name("missing"))
    with pytest.raises(ModelFileError, match=r"Cannot open .*: Not a directory"):
        ModelFile(path / "below a file")
    if os.geteuid() == 0:
        return  # to whom nothing is forbidden
    path.chmod(0)
    with pytest.raises(ModelFileError, match=r"Cannot open .*: Permission denied"):
        ModelFile(path)


def test_a_closed_file_is_not_read(path: Path) -> None:
    file = ModelFile(path, keep_cached=False)
    file.close()
    file.close()
    with pytest.raises(ModelFileError, match="closed"):
        whole(file)
    with pytest.raises(ModelFileError, match="closed"):
        file.read_pages(page_room(PAGE).data, 0, "w", 1)


def test_no_descriptor_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        file = ModelFile(path, keep_cached=False)
        assert len(os.listdir("/proc/self/fd")) > before
        file.close()
        with pytest.raises(ModelFileError):
            ModelFile(path.parent)
    del file
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_refuses_is_named_with_tensor_and_file(path: Path) -> None:
    """An offset below zero is refused by the system, as a broken disk is, with an error number."""
    file = ModelFile(path)
    with pytest.raises(ModelFileError, match=r"Reading tensor blk\.0 from .*山 é\.gguf failed: Invalid argument"):
        file.read(np.empty(8, np.uint8), -8, "blk.0")


def test_a_pool_reads_and_counts_and_tells_what_failed(pool: ReadPool, path: Path, data: U8) -> None:
    file, room = ModelFile(path, keep_cached=False), page_room(8 * PAGE)
    reads = [pool.submit(file, at, room.data[at : at + PAGE], "w", 1) for at in range(0, 8 * PAGE, PAGE)]
    failing = pool.submit(file, 80 * PAGE, page_room(PAGE).data, "blk.7", 1)
    for read in (*reads, failing):
        assert pool.wait(read, lambda: False) and read.done
    np.testing.assert_array_equal(room, data[: 8 * PAGE])
    assert not any(read.error for read in reads)
    assert isinstance(failing.error, ModelFileError) and "blk.7" in str(failing.error)
    assert pool.bytes_read == 8 * PAGE


def test_urgent_reads_come_first_and_abandoned_ones_not_at_all(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, file, room = ReadPool(1), ModelFile(path, keep_cached=False), page_room(PAGE)
    with hanging_reads(tmp_path, monkeypatch) as hanging:
        hanging.which = lambda offset: offset == 0
        first, second, third, urgent = (
            pool.submit(file, at * PAGE, room.data, "w", 1, urgent=at == 3) for at in range(4)
        )
        assert hanging.hung.acquire(timeout=10)
        pool.abandon([first, second])
        assert second.done and not first.done
        hanging.let_go()
        for read in (third, urgent, first):
            assert pool.wait(read, lambda: False)
        assert hanging.reads in ([0, 3 * PAGE, 2 * PAGE], [3 * PAGE, 0, 2 * PAGE])
    pool.close()


def test_a_wait_is_broken_when_it_is_told_to_look(
    pool: ReadPool, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, room, broken = ModelFile(path), page_room(PAGE), threading.Event()
    with hanging_reads(tmp_path, monkeypatch) as hanging:
        hanging.which = lambda offset: True
        read = pool.submit(file, 0, room.data, "w", 1)
        results: list[bool] = []

        def breaks() -> None:
            hanging.hung.acquire()
            broken.set()
            pool.wake()

        threading.Thread(target=breaks, daemon=True).start()
        in_time(lambda: results.append(pool.wait(read, broken.is_set)))
        assert results == [False] and not read.done


def test_memory_that_a_hanging_read_may_write_to_lives_until_it_returns(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, file = ReadPool(1), ModelFile(path, keep_cached=False)
    with hanging_reads(tmp_path, monkeypatch) as hanging:
        hanging.which = lambda offset: True
        room = page_room(PAGE)
        memory, raw = weakref.ref(room), weakref.ref(file._raw)
        read = pool.submit(file, 0, room.data, "w", 1)
        assert hanging.hung.acquire(timeout=10)
        pool.close()
        file.close()
        del room
        gc.collect()
        assert memory() is not None and raw() is None
        hanging.let_go()
        assert pool.wait(read, lambda: False)
        in_time(lambda: wait_until(lambda: gc.collect() >= 0 and memory() is None))


def test_a_closed_pool_ends_its_threads_and_takes_nothing_more(path: Path) -> None:
    before = threading.active_count()
    pool = ReadPool(3)
    assert threading.active_count() == before + 3
    pool.close()
    pool.close()
    in_time(lambda: wait_until(lambda: threading.active_count() <= before + 1))
    with pytest.raises(ModelFileError, match="after the model was closed"):
        pool.submit(ModelFile(path), 0, page_room(PAGE).data, "w", 1)


def test_a_process_ends_while_a_read_hangs(tmp_path: Path) -> None:
    script = """
        import os, sys, threading
        from engine.memory.reader import ReadPool
        os.mkfifo(sys.argv[1])
        fd = os.open(sys.argv[1], os.O_RDWR)
        class Fifo:
            def read_pages(self, into, offset, tensor, least):
                reads.set()
                return os.readv(fd, [into])
        reads, pool = threading.Event(), ReadPool(2)
        pool.submit(Fifo(), 0, memoryview(bytearray(8)), "w", 1)
        reads.wait()
        pool.close()
        print("ends", flush=True)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "fifo")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0 and done.stdout == "ends\n", done.stderr


def test_threads_that_the_system_refuses_are_told_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start, started = threading.active_count(), threading.Thread.start, []

    def third_refused(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", third_refused)
    with pytest.raises(BudgetError, match="fewer than 5"):
        ReadPool(5)
    for thread in started:
        thread.join(10)
    assert threading.active_count() == before
