"""Files copied so that the copy is known to be whole, and what a disk that refuses is said to have done."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from engine.errors import StorageError
from engine.units import human_bytes
from registry.saved import rename

CHUNK: Final = 4 << 20
MARGIN: Final = 32 << 20
"""Bytes of a disk that a copy leaves free."""
NEW: Final = ".copying"
"""The suffix of a file that is not whole yet."""


def copy_file(source: Path, target: Path, came: Callable[[int], None], cancel: Cancel) -> str:
    """Have `target` be what `source` is, with its time, in one step at the end: → its sha256.

    What was written is read again. `came` is told of bytes as they are written and as they are read again, so of each
    twice. Raises `StorageError` and `Cancelled`; then nothing is left at `target`.
    """
    new = target.with_name(target.name + NEW)
    digest = hashlib.sha256()
    try:
        with storage(target), new.open("wb", buffering=0) as copy:
            for chunk in _chunks(source, cancel):
                digest.update(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[copy.write(view) :]
                came(len(chunk))
            os.fsync(copy.fileno())
        sha256 = digest.hexdigest()
        if sha256_of(new, cancel, came) != sha256:
            raise StorageError(
                f"What was written to {target.parent} is not what is read from there: check that disk. The original, "
                f"{source}, is untouched."
            )
        with storage(source):
            status = source.stat()
        with storage(target):
            os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
            rename(new, target)
    except BaseException:
        _forget(new)
        raise
    return sha256


def sha256_of(path: Path, cancel: Cancel, came: Callable[[int], None] | None = None) -> str:
    """Of a file, as far as the system allows read from the disk itself. Raises `StorageError` and `Cancelled`."""
    digest = hashlib.sha256()
    for chunk in _chunks(path, cancel):
        digest.update(chunk)
        if came is not None:
            came(len(chunk))
    return digest.hexdigest()


def check_room(folder: Path, nbytes: int, what: str) -> None:
    """Raises `StorageError` where the disk of `folder`, which is there, has no place for so much."""
    with storage(folder):
        free = shutil.disk_usage(folder).free
    if free < nbytes + MARGIN:
        raise StorageError(
            f"{what} needs {human_bytes(nbytes + MARGIN)} in {folder}, and {human_bytes(free)} are free there. Free "
            "some space, or choose a folder on another disk."
        )


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Within it, what the disk refuses is raised as `StorageError`, with a sentence on the place of `path`."""
    try:
        yield
    except OSError as error:
        raise StorageError(_sentence(error, path)) from error


def _sentence(error: OSError, path: Path) -> str:
    place = path if path.is_dir() else path.parent
    if error.errno == errno.ENOSPC:
        return f"The disk that holds {place} is full. Free some space, and try again."
    if error.errno == getattr(errno, "EDQUOT", None):
        return f"Your quota on the disk that holds {place} is used up. Free some space, and try again."
    if error.errno == errno.EROFS:
        return f"The disk that holds {place} can only be read. Make it writable, or choose a folder on another one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{path} is not open to you, or another program has it open. Change that, and try again."
    if error.errno == errno.ENOENT:
        return f"{path} is gone. If it is on another disk, connect that again, and try again."
    return f"The disk refused to read or write {path} ({error.strerror or error}). Check the disk, and try again."


def _chunks(path: Path, cancel: Cancel) -> Iterator[bytes]:
    with storage(path):
        file = path.open("rb", buffering=0)
    with file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while True:
            cancel.check()
            with storage(path):
                chunk = file.read(CHUNK)
            if not chunk:
                return
            yield chunk


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # its disk is gone: the next copy writes over it
        return
