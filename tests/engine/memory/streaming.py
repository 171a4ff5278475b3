"""What the tests of streaming share: files with known bytes, a watchdog, and reads that hang until they are let go."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.formats.index import Span, TensorInfo
from engine.memory.reader import ModelFile

U8 = npt.NDArray[np.uint8]
SECONDS = 30
"""After which what should have come is not waited for any longer."""


def random_bytes(nbytes: int, seed: int = 0) -> U8:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def write(path: Path, data: U8) -> Path:
    path.write_bytes(data.tobytes())
    return path


def tensor(path: Path, offset: int, rows: int, row_bytes: int, **more: Any) -> TensorInfo:
    """A matrix of half floats, whose bytes are whatever lies there."""
    return TensorInfo(f"w{offset}", (rows, row_bytes // 2), "F16", path, offset, rows * row_bytes, **more)


def pieces(path: Path, offsets: list[int], rows: int, row_bytes: int) -> TensorInfo:
    """A stack whose matrices lie apart."""
    spans = tuple(Span(path, offset, rows * row_bytes) for offset in offsets)
    shape = len(spans), rows, row_bytes // 2
    return TensorInfo("stack", shape, "F16", path, offsets[0], sum(span.nbytes for span in spans), pieces=spans)


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


class Hanging:
    """Makes reads of a model file hang, in a read of a real fifo, before they read what they should."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "fifo"
        os.mkfifo(self._path)
        # Open for writing as well: it neither blocks here nor ends there.
        self._fd = os.open(self._path, os.O_RDWR)
        self._original = ModelFile.read_pages
        self.hung = threading.Semaphore(0)
        self.which: Callable[[int], bool] = lambda offset: True
        """Of reads at these offsets in the file."""

    def read_pages(self, file: ModelFile, into: memoryview, offset: int, tensor: str, least: int) -> int:
        if self.which(offset):
            self.hung.release()
            os.read(self._fd, 1)
        return self._original(file, into, offset, tensor, least)

    def let_go(self, reads: int = 1) -> None:
        os.write(self._fd, b"." * reads)

    def close(self) -> None:
        self.which = lambda offset: False
        self.let_go(1000)


@contextmanager
def hanging_reads(folder: Path, monkeypatch: Any) -> Iterator[Hanging]:
    hanging = Hanging(folder)
    monkeypatch.setattr(ModelFile, "read_pages", lambda file, *rest: hanging.read_pages(file, *rest))
    try:
        yield hanging
    finally:
        hanging.close()
