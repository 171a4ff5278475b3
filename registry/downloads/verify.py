"""Whether a downloaded model is still what came: every byte of it is read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import ModelFileError, StorageError
from registry.copying import sha256_of
from registry.downloads.files import inside
from registry.downloads.record import Wanted
from registry.downloads.transfer import is_whole
from registry.progress import Progress
from registry.provenance import FILE, KeptFile, Provenance, read_provenance
from registry.refusals import storage
from registry.sources.source import RemoteFile


def verify(
    folder: Path, progress: Callable[[Progress], None] | None = None, cancel: Cancel | None = None
) -> tuple[str, ...]:
    """The names of the files in a model's folder that are damaged or gone; they are marked so, and the model is not
    offered until it is repaired. A mark that is not true any more is taken away.

    Raises ModelFileError where nothing is known of what came, StorageError, and Cancelled.
    """
    kept, _ = origin(folder)
    cancel = cancel or Cancel()
    total = sum(file.nbytes for file in kept.files)
    done = 0

    def read(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(Progress(f"Verifying {kept.name}", min(done, total), total))

    damaged = set()
    end = 0
    for file in kept.files:
        if not _is_sound(folder, file, cancel, read):
            damaged.add(file.name)
        end += file.nbytes
        read(max(0, end - done))
    if damaged != set(kept.damaged):
        with storage(folder / FILE):
            kept.marked(frozenset(damaged)).write(folder)
    return tuple(file.name for file in kept.files if file.name in damaged)


def _is_sound(folder: Path, file: KeptFile, cancel: Cancel, read: Callable[[int], None]) -> bool:
    """A file that cannot be read is not sound, either."""
    try:
        path = inside(folder, *file.name.split("/"))
        return is_whole(path, _remote(file)) and sha256_of(path, cancel, read) == file.sha256
    except (OSError, StorageError):
        return False


def origin(folder: Path) -> tuple[Provenance, Wanted]:
    """What came into a model's folder, and how it is wanted again. Raises ModelFileError where that is not known."""
    if (kept := read_provenance(folder)) is None:
        raise ModelFileError(
            f"Nothing is known of where the model in {folder} is from, so it can be neither verified nor repaired."
        )
    files = {file.name: _remote(file) for file in kept.files}
    return kept, Wanted(kept.name, tuple(files.values()), files.get(kept.opens), kept.licence)


def _remote(file: KeptFile) -> RemoteFile:
    return RemoteFile(file.source, file.repository, file.revision, file.path, file.nbytes, file.sha256)
