"""Where the files of downloads lie: always in the library, never where a name or a link would lead out of it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import BinaryIO

from engine.errors import DownloadError, StorageError
from registry import refusals
from registry.paths import safe_path

FOLDER = ".downloads"
"""In the library's folder: what is not whole yet."""
PART = ".part"
"""The suffix of a file that is not whole yet."""
NOTE = ".part.json"
"""The suffix of the note beside it."""
NEW = ".new"
"""The suffix of what is written before it takes the place of another."""
LONGEST = 240
"""Bytes of a name, which leaves room for the suffixes."""

storage = partial(refusals.storage, then="resume the download")


def safe_steps(path: str) -> tuple[str, ...]:
    """The steps of a path that a source names, each of which can be kept in the library. Raises DownloadError."""
    steps = safe_path(path).parts
    for step in steps:
        if step.startswith(".") or step.endswith((PART, NOTE, NEW)) or len(step.encode()) > LONGEST:
            raise DownloadError(
                f"The source names a file or model {path[:80]!r}, and Millstream cannot keep it under this name: it is "
                "too long, begins with a dot or ends like a download that is not whole. Choose another model."
            )
    return steps


def inside(root: Path, *steps: str) -> Path:
    """`root` with `steps`, where no link on the way leads out of `root`. Raises StorageError."""
    path = root.joinpath(*steps)
    with storage(path):
        try:
            if path.resolve().is_relative_to(root.resolve()):
                return path
        except RuntimeError:  # links in a circle
            pass
    raise StorageError(f"{path} is a link that leads out of the library ({root}): remove the link, and try again.")


def make_folder(root: Path, *steps: str, there: int = 0) -> Path:
    """The same, made where it is not there. Raises StorageError.

    `root` and the first so many steps are `there` already: were they made, a download whose drive is gone would go on
    at the place where that was joined, on another drive.
    """
    path = inside(root, *steps)
    with storage(path):
        made = root.joinpath(*steps[:there])
        for step in steps[there:]:
            made /= step
            made.mkdir(exist_ok=True)
    return path


def open_part(path: Path) -> BinaryIO:
    """A file for reading and writing, unbuffered, made where it is not there; never through a link. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
