"""One item's way from the source into the library: room, files, provenance, and then the place where it is listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from engine.cancel import Cancel
from engine.errors import DownloadError, StorageError
from registry.copying import sha256_of
from registry.downloads.files import NEW, inside, make_folder, storage
from registry.downloads.record import ItemFolder, Record, Wanted
from registry.downloads.transfer import CHUNK, Transfer, WrongFileError, is_whole, part_bytes
from registry.downloads.waits import Bandwidth
from registry.provenance import FILE, KeptFile, Provenance, read_provenance
from registry.saved import rename
from registry.sources.source import RemoteFile, Source

Step = Literal["checking", "downloading", "verifying"]


def in_library(root: Path, wanted: Wanted) -> Path | None:
    """The folder of the model where the library has it already, as it is wanted. Raises DownloadError for what cannot
    be kept on a disk, StorageError."""
    target = inside(root, *wanted.steps())
    kept = read_provenance(target)
    names = wanted.names()
    if (
        kept is None
        or kept.damaged
        or {(file.name, file.nbytes) for file in kept.files} != {(name, file.nbytes) for name, file in names.items()}
    ):
        return None
    for entry in kept.files:
        file = names[entry.name]
        same = file.sha256.lower() == entry.sha256 if file.sha256 else entry.revision == file.revision
        with storage(target):
            if not same or not is_whole(target / Path(*entry.name.split("/")), file):
                return None
    return target


@dataclass
class Job:
    """`step` is told what is done now, `came` how much of which file is there. `room` raises StorageError where the
    disk has no place for so many bytes more. It can be run again after an error, and goes on from there.
    """

    folder: ItemFolder
    record: Record
    sources: Mapping[str, Source]
    bandwidth: Bandwidth
    cancel: Cancel
    step: Callable[[Step], None]
    came: Callable[[str, int], None]
    room: Callable[[int], None]
    chunk: int = CHUNK
    _transfers: dict[str, Transfer] = field(default_factory=dict, init=False)
    _wrong: set[str] = field(default_factory=set, init=False)

    def run(self) -> Path:
        """Have the model in the library: → its folder. Raises DownloadError, StorageError and Cancelled."""
        wanted = self.record.wanted
        self.step("checking")
        if (there := self._finished()) is not None:
            return there
        if not self._transfers:
            for name, file in wanted.names().items():
                self._share(name, file)
        done = self.folder.done(wanted)
        for name, nbytes in done.items():
            self.came(name, nbytes)
        self.room(wanted.nbytes - sum(done.values()))
        self.folder.files()
        for name, file in wanted.names().items():
            self._fetch(name, file)
        self.step("verifying")
        return self._place()

    def _finished(self) -> Path | None:
        target = in_library(self.folder.root, self.record.wanted)
        if target is not None:
            for name, file in self.record.wanted.names().items():
                self.came(name, file.nbytes)
        return target

    def _share(self, name: str, file: RemoteFile) -> None:
        """Take a file that another model of the repository has, such as an mmproj, by a second name for it."""
        if not file.sha256:
            return
        path = self.folder.file(name)
        new = path.with_name(path.name + NEW)
        beside = inside(self.folder.root, *self.record.wanted.steps()[:-1])
        # A disk without such names, or without the file after all: it is downloaded then.
        with suppress(OSError, StorageError):
            if is_whole(path, file):
                return
            for folder in beside.iterdir():
                kept = read_provenance(folder)
                for entry in kept.files if kept else ():
                    theirs = inside(
                        self.folder.root, *folder.relative_to(self.folder.root).parts, *entry.name.split("/")
                    )
                    if entry.sha256 == file.sha256.lower() and is_whole(theirs, file):
                        new.unlink(missing_ok=True)
                        os.link(theirs, new)
                        if sha256_of(new, self.cancel) == entry.sha256:
                            return rename(new, path)
                        new.unlink()

    def _fetch(self, name: str, file: RemoteFile) -> None:
        if (source := self.sources.get(file.source)) is None:
            raise DownloadError(f"{file.name} is from a source “{file.source}” that this version does not know.")
        transfer = self._transfers.get(name)
        if transfer is None:
            path = self.folder.file(name)
            with storage(path):
                begun = part_bytes(path, file) > 0
            self.step("checking" if begun else "downloading")

            def came(done: int) -> None:
                self.step("downloading")
                self.came(name, done)

            transfer = Transfer(file, path, source, self.bandwidth, self.cancel, came, self.chunk)
            self._transfers[name] = transfer
        while True:
            try:
                return transfer.run()
            except WrongFileError as error:
                if name in self._wrong:
                    self._wrong.discard(name)
                    raise WrongFileError(f"{error} This was the second time: try again later.") from None
                self._wrong.add(name)

    def _place(self) -> Path:
        """Move the whole folder into the library, in one step. A model that was there in another version makes way."""
        steps = self.record.wanted.steps()
        files, old = self.folder.files(), self.folder.old
        target = inside(self.folder.root, *steps)
        with storage(files / FILE):
            self._clear_strange(files)
            self._provenance(files).write(files)
        make_folder(self.folder.root, *steps[:-1])
        with storage(target):
            if target.is_symlink() or (target.exists() and not (target / FILE).exists()):
                raise StorageError(
                    f"There is something at {target} already that was not downloaded. Move it away, then resume the "
                    "download."
                )
            if old.exists():
                shutil.rmtree(old)
            if target.exists():
                rename(target, old)
            rename(files, target)
            if old.exists():
                shutil.rmtree(old)
        return target

    def _clear_strange(self, files: Path) -> None:
        """Remove what a killed run left beside the files."""
        wanted = {files / Path(*name.split("/")) for name in self.record.wanted.names()}
        for path in list(files.rglob("*")):
            if path not in wanted and (path.is_symlink() or not path.is_dir()):
                path.unlink()

    def _provenance(self, folder: Path) -> Provenance:
        wanted = self.record.wanted
        names = wanted.names()
        kept = tuple(self._kept(folder, name, file) for name, file in names.items())
        opens = next((name for name, file in names.items() if file == wanted.opens), "")
        return Provenance(wanted.name, opens, wanted.licence, datetime.now(UTC).date().isoformat(), kept)

    def _kept(self, folder: Path, name: str, file: RemoteFile) -> KeptFile:
        sha256 = file.sha256.lower() or sha256_of(folder / Path(*name.split("/")), self.cancel)
        return KeptFile(
            name=name,
            nbytes=file.nbytes,
            sha256=sha256,
            source=file.source,
            repository=file.repository,
            revision=file.revision,
            path=file.path,
            promised=bool(file.sha256 or file.git_sha1),
        )
