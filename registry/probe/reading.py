"""Measuring how fast the drive of the models folder is read, also where there is no model on it yet."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from engine.errors import StorageError
from engine.memory.figures import Drive
from engine.memory.machine import drive_of
from registry.progress import Progress

ENOUGH: Final = 256 << 20
"""Bytes of a file that is read: far more than the reads of a moment, so that they do not meet the same places."""
LEFT: Final = 1 << 30
"""Bytes that must stay free on the drive beside the file."""
PIECE: Final = 4 << 20


def measure(
    folder: Path,
    measurements: Path | None,
    cancel: Cancel,
    progress: Callable[[Progress], None] | None = None,
) -> Drive:
    """Measure the drive of `folder` in about two seconds, and keep the figures for `probe` and for plans.

    Reads a file that is there, or one of 256 MiB that is written for this and removed again; makes the folder where it
    is not there. `progress` is told of what is written, which takes long on a slow drive. Raises StorageError where
    the drive refuses, ModelFileError where reading does, and `Cancelled`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _something(folder, cancel, progress or (lambda _: None)) as file:
            return drive_of(file, measurements, remeasure=True, cancel=cancel)
    except OSError as error:
        raise StorageError(f"The drive of {folder} cannot be measured: {error.strerror or error}.") from error


@contextlib.contextmanager
def _something(folder: Path, cancel: Cancel, report: Callable[[Progress], None]) -> Iterator[Path]:
    """A file on the drive that is large enough. Bytes without a pattern, since some drives and file systems pack."""
    device = folder.stat().st_dev
    for path in folder.glob("*"):
        told = path.stat() if path.is_file() else None
        if told and told.st_dev == device and told.st_size >= ENOUGH and os.access(path, os.R_OK):
            yield path
            return
    if shutil.disk_usage(folder).free < ENOUGH + LEFT:
        raise StorageError(f"The drive of {folder} is too full to measure it: free more than a gigabyte on it.")
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".measure-")
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for done in range(0, ENOUGH, PIECE):
                cancel.check()
                report(Progress("Writing a file to read", done, ENOUGH))
                file.write(os.urandom(PIECE))
            os.fsync(file.fileno())
        report(Progress("Writing a file to read", ENOUGH, ENOUGH))
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
