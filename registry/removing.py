"""A model taken out of the library: it leaves its place in one step, and is deleted where nothing is listed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import MillstreamError, StorageError
from engine.formats import open_index
from engine.interrupts import held_back
from registry.refusals import storage
from registry.saved import rename

WORK: Final = ".removed-"
"""How the folders begin in which lies what is being deleted."""
LEVELS: Final = ("", "*/", "*/*/", "*/*/*/")
"""Where such folders may be: beside whatever the library lists."""


@dataclass(frozen=True)
class Removal:
    """`paths` are what is deleted, all in the library. `frees` is in bytes: a file that has another name elsewhere, as
    a vision tower that two models share, frees nothing."""

    name: str
    root: Path
    paths: tuple[Path, ...]
    frees: int

    def run(self) -> None:
        """Do it. What a killed run left is deleted, too. Raises `StorageError`; then all is where it was, or what is
        left of it is not listed."""
        for left in (path for level in LEVELS for path in self.root.glob(f"{level}{WORK}*")):
            shutil.rmtree(left, ignore_errors=True)
        beside = self.paths[0].parent
        with held_back(), storage(self.paths[0]):
            work = Path(tempfile.mkdtemp(prefix=WORK, dir=beside))
            self._leave(work)
        with storage(work):
            shutil.rmtree(work)
        with suppress(OSError):  # folders that hold something else stay
            while beside != self.root:
                beside.rmdir()
                beside = beside.parent

    def _leave(self, work: Path) -> None:
        """Raises OSError, and then all is where it was."""
        gone: list[tuple[Path, Path]] = []
        try:
            for number, path in enumerate(self.paths):
                rename(path, work / str(number))
                gone.append((path, work / str(number)))
        except OSError:
            for path, now in reversed(gone):
                with suppress(OSError):
                    rename(now, path)
            with suppress(OSError):
                work.rmdir()
            raise


def removal(root: Path, name: str, place: Path) -> Removal:
    """That of a model which is listed by this name, and is `place` in the library. Of a link, the link is removed, and
    never what it leads to.

    Raises `StorageError` where links lead out of the library.
    """
    with storage(place):
        try:
            inside = place.parent.resolve().is_relative_to(root.resolve())
        except RuntimeError:  # links in a circle
            inside = False
    if not inside:
        raise StorageError(
            f"{name} lies outside the library ({place.parent.resolve()}), where a link leads: nothing was removed. "
            "Delete it there, or remove the link."
        )
    paths = _parts(place)
    with storage(place):
        return Removal(name, root, paths, _frees(paths))


def _parts(place: Path) -> tuple[Path, ...]:
    """A split model is all its parts, the first one first: without it the others are not listed."""
    if place.is_symlink() or place.suffix != ".gguf":
        return (place,)
    try:
        parts = tuple(place.with_name(part.name) for part in open_index(place).paths)
    except MillstreamError:
        return (place,)
    return parts if place in parts else (place,)


def _frees(paths: tuple[Path, ...]) -> int:
    """The sizes of the files, without those that keep a name elsewhere. Raises OSError."""
    status = [path.lstat() for path in _files(paths)]
    here = Counter((each.st_dev, each.st_ino) for each in status)
    sizes = {
        (each.st_dev, each.st_ino): each.st_size for each in status if here[each.st_dev, each.st_ino] >= each.st_nlink
    }
    return sum(sizes.values())


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            yield path
            continue
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names)
