"""The files of a library that moves, and who else may be at work among them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from engine.errors import StorageError
from registry.importing import LOCK as IMPORTING
from registry.importing import WORK
from registry.place import MARKER
from registry.refusals import storage
from registry.saved import sync_folder

BEGUN: Final = ".millstream-moving"
"""In the new folder until all is there: it says whose files these are."""
FETCHING: Final = ".fetch.lock"
DOWNLOADS: Final = ".downloads"
SKIPPED: Final = (MARKER, BEGUN, IMPORTING, FETCHING)


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """All files below `root` with their sizes and times, links among them. Raises `StorageError`."""
    found = {}

    def refuse(error: OSError) -> None:
        raise error

    with storage(root):
        for folder, folders, names in os.walk(root, onerror=refuse):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in (*names, *links):
                path = Path(folder, name)
                relative = path.relative_to(root)
                # Locks are held there, and mean nothing elsewhere.
                held = relative.parts[0] == DOWNLOADS and name == "lock"
                work = relative.parts[0].startswith(WORK)
                if str(relative) not in SKIPPED and not held and not work:
                    status = os.lstat(path)
                    found[relative.as_posix()] = (status.st_size, status.st_mtime_ns)
    return found


@contextmanager
def nobody_at_work(root: Path) -> Iterator[None]:
    """Within it nobody else writes into a library. Raises `StorageError` where somebody does."""
    busy = f"A download or an import into {root} is running. Wait until it is done, or pause it, and try again."
    locks = [path for path in (root / FETCHING, root / IMPORTING) if path.exists()]
    with ExitStack() as stack:
        for path in (*locks, *sorted((root / DOWNLOADS).glob("*/lock"))):
            stack.enter_context(held(path, busy))
        yield


@contextmanager
def held(path: Path, otherwise: str) -> Iterator[None]:
    lock = FileLock(path)
    with storage(path):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise StorageError(otherwise) from None
    try:
        yield
    finally:
        lock.release()


def has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False


def second_name(old: Path, new: Path) -> bool:
    """False on a disk without such names."""
    try:
        os.link(old, new)
        sync_folder(new.parent)
    except OSError:
        return False
    return True
