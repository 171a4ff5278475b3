"""The files below a folder, looked through within bounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from registry.stores.found import FoundFile

DEPTH: Final = 8
MOST: Final = 50_000
"""Files and folders that are looked at in all."""


def no_hash(path: Path) -> str:
    """Of a store that does not tell hashes."""
    return ""


@dataclass
class Walk:
    """Goes through `root` and the folders in it, each once, by whatever links it is reached. Hidden ones are left out.

    Afterwards `sentence` says what was not looked at, if anything. Iterating raises `Cancelled`.
    """

    root: Path
    cancel: Cancel | None = None
    depth: int = DEPTH
    most: int = MOST
    sha256: Callable[[Path], str] = no_hash
    sentence: str = field(default="", init=False)
    _seen: set[tuple[int, int]] = field(default_factory=set, init=False)
    _count: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[tuple[Path, list[FoundFile]]]:
        """Each folder with its files, by name."""
        yield from self._folder(self.root, self.depth)

    def _folder(self, folder: Path, depth: int) -> Iterator[tuple[Path, list[FoundFile]]]:
        try:
            status = os.stat(folder)
            entries = self._entries(folder)
        except OSError as error:
            if folder == self.root and not isinstance(error, FileNotFoundError):
                self.sentence = f"{folder} could not be looked into: {error.strerror or error}."
            return
        key = (status.st_dev, status.st_ino)
        if key in self._seen:
            return
        self._seen.add(key)
        files = []
        folders = []
        for entry in entries:
            if _is_folder(entry):
                folders.append(Path(entry.path))
            elif file := self._file(entry):
                files.append(file)
        yield folder, files
        if folders and not depth:
            self.sentence = self.sentence or (
                f"Folders deeper than {self.depth} below {self.root} were not looked into: choose one further in."
            )
            return
        for inner in folders:
            yield from self._folder(inner, depth - 1)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        entries = []
        with os.scandir(folder) as found:
            for entry in found:
                if self.cancel is not None:
                    self.cancel.check()
                if self._count >= self.most:
                    self.sentence = (
                        f"Only the first {self.most} files in {self.root} were looked at: choose a folder further in."
                    )
                    break
                self._count += 1
                if not entry.name.startswith("."):
                    entries.append(entry)
        return sorted(entries, key=lambda entry: entry.name)

    def _file(self, entry: os.DirEntry[str]) -> FoundFile | None:
        """An ordinary file; one of no bytes stands for a link that leads nowhere, as a half cleared cache has them."""
        path = Path(entry.path)
        try:
            if entry.is_file():
                return FoundFile(entry.name, path, entry.stat().st_size, self.sha256(path))
            return FoundFile(entry.name, path, 0) if entry.is_symlink() and not path.exists() else None
        except OSError:
            return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
