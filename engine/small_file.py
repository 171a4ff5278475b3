"""Small files that anything may lie in the place of: a pipe, a device, another file that never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_now(path: str | os.PathLike[str]) -> BinaryIO:
    """Open to read, without waiting for somebody to write: a pipe that nobody has open for that is at its end.

    Raises OSError, and ValueError for a name that none can be.
    """
    flags = os.O_RDONLY
    for name in ("O_BINARY", "O_CLOEXEC", "O_NOCTTY", "O_NONBLOCK"):  # as far as the system has them
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags)
    try:
        if hasattr(os, "O_NONBLOCK"):
            os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_small(path: Path, most: int) -> bytes:
    """What an ordinary file of at most `most` bytes holds. Raises OSError for anything else."""
    with open_now(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data
