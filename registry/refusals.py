"""What a disk that refuses is said to have done, in one sentence that names the place and the way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import StorageError


@contextmanager
def storage(path: Path, then: str = "try again") -> Iterator[None]:
    """Within it, what the disk refuses is raised as `StorageError`, with a sentence on the place of `path`. `then` is
    what a person does once that is put right."""
    try:
        yield
    except OSError as error:
        raise StorageError(_sentence(error, path, then)) from error


def _sentence(error: OSError, path: Path, then: str) -> str:
    place = path if os.path.isdir(path) else path.parent
    match error.errno:
        case errno.ENOSPC:
            return f"The disk that holds {place} is full. Free some space, and {then}."
        case errno.EDQUOT:
            return f"Your quota on the disk that holds {place} is used up. Free some space, and {then}."
        case errno.EROFS:
            return (
                f"The disk that holds {place} can only be read. Make it writable, or choose a folder on another one, "
                f"and {then}."
            )
        case errno.EACCES | errno.EPERM:
            return f"{path} is not open to you, or another program has it open. Change that, and {then}."
        case errno.ELOOP:
            return f"{path} is a link that is not followed. Remove it, and {then}."
        case errno.ENOENT:
            return f"{path} is gone. If it is on another disk, connect that again, and {then}."
    return f"The disk refused to read or write {path} ({error.strerror or error}). Check the disk, and {then}."
