"""What the system keeps of a file in memory, and how to have it forget that. Linux tells, and macOS in part."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np


class CachedPages:
    """How much of a file the system keeps in memory: `mincore` over a mapping that nobody touches."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._held = np.zeros(-(-self._bytes.size // mmap.PAGESIZE), np.uint8)
        self._mincore = ctypes.CDLL(None, use_errno=True).mincore
        self._mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p

    def nbytes(self) -> int:
        """Now. A file that has become shorter is looked at as far as it was long."""
        if self._mincore(self._bytes.ctypes.data, self._bytes.size, self._held.ctypes.data):
            raise OSError(ctypes.get_errno(), "mincore refuses")
        return int(np.count_nonzero(self._held & 1)) * mmap.PAGESIZE

    def __enter__(self) -> CachedPages:
        return self

    def __exit__(self, *_: object) -> None:
        del self._bytes
        self._map.close()


def forget(path: Path) -> None:
    """Have the system keep nothing of the file in memory, after it has written what it still has to."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
