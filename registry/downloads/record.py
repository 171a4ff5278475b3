"""What is to be downloaded as one, and the record of it on disk, from which everything is known again at a start."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from engine.errors import DownloadError, StorageError
from registry.downloads.files import FOLDER, inside, make_folder, safe_steps, storage
from registry.downloads.transfer import is_whole, part_bytes, remote_fields, remote_file, same_bytes, throw_away
from registry.provenance import read_provenance
from registry.saved import read_json, rename, write_json
from registry.sources.source import RemoteFile

_RECORD = "record.json"
_FILES = "files"
_LOCK = "lock"
_OLD = "old"
_ITEM = 2
"""Steps from the library's folder to an item's."""


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

    `added` is the moment, "2026-05-31T09:30:00.000000+00:00", by which items keep their order. `repair`: what is whole
    of it was in the library, and is to be there again. `needs_token`: an access token may be what it is paused for.
    """

    wanted: Wanted
    paused: bool
    sentence: str
    added: str
    repair: bool = False
    needs_token: bool = False


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
        """Made where it is not there, in the item's folder, which is. Raises StorageError."""
        return make_folder(self.root, FOLDER, self.id, _FILES, there=_ITEM)

    def file(self, name: str) -> Path:
        """The place of one file, its folder made as `files`. Raises StorageError."""
        *folders, last = name.split("/")
        make_folder(self.root, FOLDER, self.id, _FILES, *folders, there=_ITEM)
        return self.path / _FILES / Path(*folders, last)

    def done(self, wanted: Wanted) -> dict[str, int]:
        """How much of each file is surely there. Raises StorageError."""
        with storage(self.path):
            return {
                name: part_bytes(self.path / _FILES / Path(*name.split("/")), file)
                for name, file in wanted.names().items()
            }

    def renew(self, record: Record) -> Record:
        """The same as `write`, for files that may be of another revision than those that are here: what came stays
        where it is the same for sure, and a repair stays one: → what was written. Raises StorageError."""
        former: dict[str, RemoteFile] = {}
        with suppress(OSError, ValueError, DownloadError):
            there = self.read()
            former = there.wanted.names()
            record = replace(record, repair=record.repair or there.repair)
        for name, file in record.wanted.names().items():
            if name not in former or not same_bytes(former[name], file):
                path = self.file(name)
                with storage(path):
                    throw_away(path)
                    path.unlink(missing_ok=True)
        self.write(record)
        return record

    def write(self, record: Record) -> None:
        """Raises StorageError."""
        wanted = record.wanted
        value: dict[str, object] = {
            "name": wanted.name,
            "files": [remote_fields(file) for file in wanted.files],
            "opens": wanted.files.index(wanted.opens) if wanted.opens is not None else len(wanted.files),
            "licence": wanted.licence,
            "paused": record.paused,
            "sentence": record.sentence,
            "added": record.added,
            "repair": record.repair,
            "needs_token": record.needs_token,
        }
        inside(self.root, FOLDER, self.id)
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
        return Record(
            wanted,
            value.flag("paused"),
            value.text("sentence"),
            value.text("added"),
            repair=value.flag("repair", absent=False),
            needs_token=value.flag("needs_token", absent=False),
        )

    @contextmanager
    def alone(self, *, new: bool = False) -> Iterator[bool]:
        """Within it no other process works on the item: False where one already does. Raises StorageError.

        A `new` item has its folder made, in the library's, which is there. Where there is no record at the end, the
        folder vanishes.
        """
        if new:
            make_folder(self.root, FOLDER, self.id)
        self._require_there()  # a lock would make it
        lock = FileLock(self.path / _LOCK)
        with storage(self.path / _LOCK), suppress(Timeout):
            lock.acquire(timeout=0)
        alone = lock.is_locked
        try:
            yield alone
        finally:
            lock.release()
            if alone and not self.exists():
                with suppress(OSError):
                    (self.path / _LOCK).unlink(missing_ok=True)
                    self.path.rmdir()

    def take_back(self, folder: Path, damaged: Iterable[str]) -> None:
        """Have a model from the library be this item's files again, but for the damaged ones. Raises StorageError."""
        files = self.files()
        with storage(folder):
            shutil.rmtree(files)
            for name in damaged:  # first: a file that is among the item's by its own name counts as verified
                (folder / Path(*name.split("/"))).unlink(missing_ok=True)
            rename(folder, files)

    def give_back(self, record: Record) -> None:
        """Have a model that is being repaired be in the library again, as it is now, while it is `alone`; of another
        download this does nothing. Raises StorageError and DownloadError."""
        files = self.path / _FILES
        if not record.repair or (kept := read_provenance(files)) is None:
            return
        names, steps = record.wanted.names(), record.wanted.steps()
        target = inside(self.root, *steps)
        if os.path.lexists(target):
            raise StorageError(
                f"What is whole of {kept.name} cannot go back into the library: there is something at {target} "
                "already. Move it away, and try again."
            )
        make_folder(self.root, *steps[:-1])
        with storage(files):
            for name in names:
                throw_away(files / Path(*name.split("/")))
            whole = {name for name, file in names.items() if is_whole(files / Path(*name.split("/")), file)}
            kept.marked(frozenset(file.name for file in kept.files if file.name not in whole)).write(files)
            rename(files, target)

    def forget(self) -> None:
        """Have the item be no more, and delete what lies here, while it is `alone`. Raises StorageError."""
        with storage(self.path / _RECORD):
            (self.path / _RECORD).unlink(missing_ok=True)
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != _LOCK:
                    path.unlink()

    def _require_there(self) -> None:
        with storage(self.path):
            if not self.path.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


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
