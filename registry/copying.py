"""Files copied so that the copy is known to be whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from engine.errors import StorageError
from engine.units import human_bytes
from registry.refusals import storage
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
