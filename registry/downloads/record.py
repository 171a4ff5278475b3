"""What is to be downloaded as one, and the record of it on disk, from which everything is known again at a start."""

from __future__ import annotations

import hashlib
import json
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from engine.errors import DownloadError
from registry.downloads.files import FOLDER, safe_steps, inside, make_folder, storage
from registry.downloads.transfer import part_bytes, remote_fields, remote_file
from registry.saved import read_json, rename, write_json
from registry.sources.source import RemoteFile

_RECORD = "record.json"
_FILES = "files"
_LOCK = "lock"
_OLD = "old"


@dataclass(frozen=True)
class Wanted:
    """Files that become usable together, in the folder `<repository>/<name>` of the library.

    `opens` is one of `files`, by which the model is opened: the first part of a split one; None where the model is the
    folder. A GGUF file lies in the folder itself, beside its other parts and its mmproj, whatever folder of the
    repository it is from; any other keeps its path. The first file's repository names the model.
    """

    name: str
    files: tuple[RemoteFile, ...]
    opens: RemoteFile | None
    licence: str = ""

    @property
    def id(self) -> str:
        """The same for the same files, of whichever revision."""
        key = [[file.source, file.repository, file.path] for file in sorted(self.files, key=lambda file: file.path)]
        return hashlib.sha256(json.dumps([self.name, key]).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    def steps(self) -> tuple[str, ...]:
        """The folders from the library's down to the model's. Raises DownloadError for what no folder can be named."""
        if len(name := safe_steps(self.name)) != 1:
            raise DownloadError(f"“{self.name}” cannot be a folder's name: it holds a /. Choose another model.")
        return safe_steps(self.files[0].repository) + name

    def names(self) -> dict[str, RemoteFile]:
        """The files by their paths in the folder. Raises DownloadError for unsafe ones, and for two the same."""
        names: dict[str, RemoteFile] = {}
        for file in self.files:
            steps = safe_steps(file.path)
            name = steps[-1] if file.path.lower().endswith(".gguf") else "/".join(steps)
            if _folded(name) in map(_folded, names):
                raise DownloadError(
                    f"{self.name} has two files that would both be kept as {name}. Nothing was downloaded; choose "
                    "another model."
                )
            names[name] = file
        return names

    def check(self) -> None:
        """Raises DownloadError where it cannot be kept on a disk."""
        if not self.files or (self.opens is not None and self.opens not in self.files):
            raise DownloadError(f"{self.name} has no file to open. Nothing was downloaded; choose another model.")
        self.steps()
        self.names()


@dataclass(frozen=True)
class Record:
    """`paused` is by a person or for the reason `sentence`; an item that is not paused goes on at the next start.

    `added` is the moment, "2026-05-31T09:30:00.000000+00:00", by which items keep their order.
    """

    wanted: Wanted
    paused: bool
    sentence: str
    added: str


@dataclass(frozen=True)
class ItemFolder:
    """Where one item lies while it is not whole, `<library>/.downloads/<id>`: its record, its lock and its files."""

    root: Path
    id: str

    @property
    def path(self) -> Path:
        return self.root / FOLDER / self.id

    @property
    def old(self) -> Path:
        """Where the model that was in the library makes way for the new one."""
        return self.path / _OLD

    def files(self) -> Path:
        """Made where it is not there. Raises StorageError."""
        return make_folder(self.root, FOLDER, self.id, _FILES)

    def file(self, name: str) -> Path:
        """The place of one file, its folder made where it is not there. Raises StorageError."""
        *folders, last = name.split("/")
        make_folder(self.root, FOLDER, self.id, _FILES, *folders)
        return self.path / _FILES / Path(*folders, last)

    def done(self, wanted: Wanted) -> dict[str, int]:
        """How much of each file is surely there. Raises StorageError."""
        with storage(self.path):
            return {
                name: part_bytes(self.path / _FILES / Path(*name.split("/")), file)
                for name, file in wanted.names().items()
            }

    def write(self, record: Record) -> None:
        """Raises StorageError."""
        make_folder(self.root, FOLDER, self.id)
        wanted = record.wanted
        value: dict[str, object] = {
            "name": wanted.name,
            "files": [remote_fields(file) for file in wanted.files],
            "opens": wanted.files.index(wanted.opens) if wanted.opens is not None else len(wanted.files),
            "licence": wanted.licence,
            "paused": record.paused,
            "sentence": record.sentence,
            "added": record.added,
        }
        with storage(self.path / _RECORD):
            write_json(self.path / _RECORD, value)

    def exists(self) -> bool:
        return (self.path / _RECORD).exists()

    def read(self) -> Record:
        """Raises OSError, ValueError and DownloadError for a record that is absent, damaged or unsafe."""
        value = read_json(self.path / _RECORD)
        files = tuple(remote_file(fields) for fields in value.each("files"))
        opens = value.count("opens")
        wanted = Wanted(value.text("name"), files, files[opens] if opens < len(files) else None, value.text("licence"))
        wanted.check()
        if wanted.id != self.id:
            raise ValueError("the record of another item")
        return Record(wanted, value.flag("paused"), value.text("sentence"), value.text("added"))

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Within it no other process works on the item: False where one already does. Raises StorageError."""
        make_folder(self.root, FOLDER, self.id)
        lock = FileLock(self.path / _LOCK)
        with storage(self.path / _LOCK), suppress(Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def take_back(self, folder: Path, damaged: Iterable[str]) -> None:
        """Have a model from the library be this item's files again, but for the damaged ones. Raises StorageError."""
        files = self.files()
        with storage(folder):
            shutil.rmtree(files)
            rename(folder, files)
            for name in damaged:
                (files / Path(*name.split("/"))).unlink(missing_ok=True)

    def forget(self) -> None:
        """Have the item be no more, while it is `alone`: nobody takes up what has no record. Raises StorageError."""
        with storage(self.path / _RECORD):
            (self.path / _RECORD).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything, the lock last, as far as it can be. Raises StorageError."""
        with storage(inside(self.root, FOLDER, self.id)):
            if self.path.exists():
                shutil.rmtree(self.path)


def _folded(name: str) -> str:
    """The same for names that some system takes for one."""
    return unicodedata.normalize("NFC", name).casefold()


def left_behind(root: Path) -> list[ItemFolder]:
    """The folders of items that are not whole. Raises StorageError."""
    place = inside(root, FOLDER)
    with storage(place):
        if not place.is_dir():
            return []
        return [
            ItemFolder(root, path.name) for path in sorted(place.iterdir()) if path.is_dir() and not path.is_symlink()
        ]
