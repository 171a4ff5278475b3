"""A file as the system gives it: read at offsets by any number of threads at once, without a position of its own."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PAGE = 4096
"""Bytes: reads that go past the system's cache are of whole pages, in the file and in memory.

Disks ask for 512 or 4096; where one asks for more, the system refuses, and reads go through the cache.
"""


@dataclass(frozen=True)
class State:
    """What changes when somebody writes to a file."""

    size: int
    mtime_ns: int


class NotAFileError(Exception):
    """What lies there is no regular file, but what the error's text says."""


class RawFile(Protocol):
    """An open file, closed when nobody refers to it any more, a read that hangs included.

    Everything raises OSError where the system refuses. A read that a signal interrupts goes on.
    """

    def read_some(self, into: memoryview, offset: int) -> int:
        """At least one byte at `offset`, up to all that `into` has room for: → how many; 0 at the end of the file."""
        ...

    def state(self) -> State: ...

    def identity(self) -> tuple[int, int]:
        """The same numbers for the same file, whatever its name is by now."""
        ...

    def drop_cached(self, offset: int, nbytes: int) -> None:
        """Give back the memory in which the system keeps whole pages of these bytes, where it can be told to."""
        ...


def open_raw(path: Path, *, cached: bool = True, direct: bool = False) -> RawFile:
    """Open a regular file; anything else is refused with NotAFileError, and never waited for.

    Without `cached` the system is asked not to read ahead. With `direct` reads go past its cache, of whole pages alone;
    OSError where the file system cannot. On macOS nothing is cached without `cached`, and `direct` adds nothing.
    """
    if sys.platform == "win32":
        from engine.memory.windows_file import WindowsFile

        return WindowsFile(path, direct=direct)
    return _PosixFile(path, cached, direct)


class _PosixFile:
    def __init__(self, path: Path, cached: bool, direct: bool) -> None:
        # A fifo that nobody writes to, or a terminal, must not block the caller or become the process's own.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        if direct and sys.platform == "linux":
            flags |= os.O_DIRECT
        self._fd = os.open(path, flags)
        mode = os.fstat(self._fd).st_mode
        if not stat.S_ISREG(mode):
            raise NotAFileError(_kind(mode))
        if not cached:
            self._bypass_cache(direct)

    def _bypass_cache(self, direct: bool) -> None:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(self._fd, fcntl.F_NOCACHE, 1)
        elif not direct and sys.platform == "linux":
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def read_some(self, into: memoryview, offset: int) -> int:
        return os.preadv(self._fd, [into], offset)

    def state(self) -> State:
        now = os.fstat(self._fd)
        return State(now.st_size, now.st_mtime_ns)

    def identity(self) -> tuple[int, int]:
        now = os.fstat(self._fd)
        return now.st_dev, now.st_ino

    def drop_cached(self, offset: int, nbytes: int) -> None:
        if sys.platform == "linux":
            # Pages that the range covers in part would be kept.
            start, stop = offset // PAGE * PAGE, -(-(offset + nbytes) // PAGE) * PAGE
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, start, stop - start, os.POSIX_FADV_DONTNEED)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"
