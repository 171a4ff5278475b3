"""What the tests of streaming share: files with known bytes, a watchdog, and reads that hang until they are let go."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.buffers import in_large_pages
from engine.errors import ModelFileError
from engine.formats.index import Span, TensorInfo
from engine.memory.raw_file import PAGE
from engine.memory.reader import ModelFile

U8 = npt.NDArray[np.uint8]
SECONDS = 30
"""After which what should have come is not waited for any longer."""


def random_bytes(nbytes: int, seed: int = 0) -> U8:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def write(path: Path, data: U8) -> Path:
    """The file with these bytes, which are on the disk and no longer in the system's cache."""
    path.write_bytes(data.tobytes())
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    return path


def page_room(nbytes: int) -> U8:
    """Memory on a page's boundary."""
    room = in_large_pages(max(nbytes, 2 << 20))
    assert room.ctypes.data % PAGE == 0
    return room[:nbytes]


def cached_pages(path: Path) -> int:
    """Pages of the file that are in the system's cache, by mincore(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as mapping:
        pages = np.zeros(-(-len(mapping) // PAGE), np.uint8)
        address = np.frombuffer(mapping, np.uint8).ctypes.data
        status = libc.mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)), ctypes.c_void_p(pages.ctypes.data)
        )
        assert status == 0, os.strerror(ctypes.get_errno())
        return int((pages & 1).sum())


def tensor(path: Path, offset: int, rows: int, row_bytes: int, **more: Any) -> TensorInfo:
    """A matrix of half floats, whose bytes are whatever lies there."""
    return TensorInfo(f"w{offset}", (rows, row_bytes // 2), "F16", path, offset, rows * row_bytes, **more)


def stacked(path: Path, offset: int, matrices: int, rows: int, row_bytes: int) -> TensorInfo:
    shape = matrices, rows, row_bytes // 2
    return TensorInfo(f"s{offset}", shape, "F16", path, offset, matrices * rows * row_bytes)


def apart(spans: list[tuple[Path, int]], rows: int, row_bytes: int) -> TensorInfo:
    """A stack whose matrices lie apart."""
    pieces = tuple(Span(path, offset, rows * row_bytes) for path, offset in spans)
    shape = len(pieces), rows, row_bytes // 2
    return TensorInfo("apart", shape, "F16", *spans[0], sum(span.nbytes for span in pieces), pieces=pieces)


def wait_until(reached: Callable[[], bool]) -> None:
    """For what other threads do; to be used `in_time`."""
    while not reached():
        time.sleep(0.002)


def in_time(work: Callable[[], None]) -> None:
    """Run it in a thread of its own; fails where it hangs, and raises what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "hangs"
    if failures:
        raise failures[0]


class HangingReads:
    """Some reads of model files first read from a fifo that nobody writes to."""

    def __init__(self, folder: Path, read_pages: Callable[..., int]) -> None:
        path = folder / "fifo"
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)  # so that neither opening blocks nor reading ends
        self._read_pages = read_pages
        self.hung = threading.Semaphore(0)
        """Released by every read that hangs from now on."""
        self.which: Callable[[int], bool] = lambda offset: False
        """Of reads at these offsets in the file."""
        self.fails: Callable[[int], bool] = lambda offset: False
        """Reads at these offsets fail as a disk's do."""
        self.reads: list[int] = []
        """The offsets that were read, in their order."""

    def read_pages(self, file: ModelFile, into: memoryview, offset: int, tensor: str, least: int) -> int:
        self.reads.append(offset)
        if self.which(offset):
            self.hung.release()
            os.read(self._fd, 1)
        if self.fails(offset):
            raise ModelFileError(f"Reading tensor {tensor} from {file.path} failed: Input/output error.")
        return self._read_pages(file, into, offset, tensor, least)

    def let_go(self, reads: int = 1) -> None:
        os.write(self._fd, b"." * reads)


@contextmanager
def hanging_reads(folder: Path, monkeypatch: Any) -> Iterator[HangingReads]:
    """All reads of model files by pages can be made to hang, and are noted."""
    hanging = HangingReads(folder, ModelFile.read_pages)
    monkeypatch.setattr(ModelFile, "read_pages", lambda file, *rest: hanging.read_pages(file, *rest))
    try:
        yield hanging
    finally:
        hanging.which = lambda offset: False
        hanging.let_go(1000)
