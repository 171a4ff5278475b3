"""The beginnings of models that are elsewhere: as much of each file as its header is, so that the engine can plan for a
model before it is here.

Of a GGUF or safetensors file the header comes, by ranges; what stands beside a checkpoint comes whole. All of it is
kept in a folder, by where it is from, so that a second look costs nothing and needs no network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from engine.cancel import Cancel
from engine.errors import DownloadError, StorageError
from engine.formats import gguf_header, safetensors
from engine.formats.cursor import MoreNeeded
from registry.paths import safe_path
from registry.saved import Fields, read_json, write_json
from registry.sources.source import OfflineError, RemoteFile, Repository, Source

FIRST: Final = 1 << 20
"""Bytes that are asked for first. Where they are too few, twice as many are."""
MOST: Final = gguf_header.MAX_HEADER + 8
"""Bytes of a header, or of a file beside it, at most."""
BREAKS: Final = 5
"""How often a connection may break while one file's beginning comes."""
REPOSITORIES: Final = 64
"""Of so many repositories' revisions the headers are kept: those that were looked at last."""
HEADED: Final = (".gguf", ".safetensors")
"""How files end of which the header is enough."""

LISTING: Final = "repository.json"
NEW: Final = ".new-"
DAY: Final = 86_400.0
"""Seconds."""


@dataclass(frozen=True)
class Beginnings:
    """Where the files of a model begin here, in the order in which they were asked for, and the true size of each of
    which only the beginning is here, as `engine.formats.open_index` takes them."""

    paths: tuple[Path, ...]
    sizes: Mapping[Path, int]


Told = Callable[[str, int], None]
"""Is told the name of a file, and how many bytes of it have come."""


class Headers:
    """What is kept in `folder`, which need not be there yet. Two programs may use one folder."""

    def __init__(self, folder: Path, *, first: int = FIRST) -> None:
        self._folder = folder
        self._first = first

    def repository(self, source: Source, id: str, cancel: Cancel, revision: str | None = None) -> Repository:
        """As the source's own, or what it said the last time where it cannot be reached. Raises as the source does."""
        listing = self._folder / _digest(source.name, id, revision or "") / LISTING
        try:
            found = source.repository(id, cancel, revision)
        except OfflineError:
            with contextlib.suppress(OSError, ValueError, DownloadError):
                return _listed(read_json(listing))
            raise
        with self._storage():
            listing.parent.mkdir(parents=True, exist_ok=True)
            write_json(listing, dataclasses.asdict(found))
        return found

    def fetch(
        self, source: Source, files: Sequence[RemoteFile], cancel: Cancel, told: Told | None = None
    ) -> Beginnings:
        """Have the beginnings of a model's files, those of one repository.

        Raises ModelFileError and UnsupportedModelError for what is no sound header, which is not kept; StorageError
        where the disk refuses; what `source` raises where a file is not kept and cannot be had; and `Cancelled`.
        """
        paths = [self._have(source, file, cancel, told) for file in files]
        self._forget()
        sizes = {path: file.nbytes for path, file in zip(paths, files, strict=True) if _is_headed(file)}
        return Beginnings(tuple(paths), sizes)

    def _have(self, source: Source, file: RemoteFile, cancel: Cancel, told: Told | None) -> Path:
        folder = self._folder / _digest(file.source, file.repository, file.revision)
        steps = safe_path(file.path)
        path, note = folder / "files" / steps, folder / "notes" / steps.with_name(f"{steps.name}.json")
        with self._storage():
            if _is_kept(file, path, note):
                os.utime(folder)
                return path
            path.parent.mkdir(parents=True, exist_ok=True)
            note.parent.mkdir(parents=True, exist_ok=True)
            # It gets its place when it is sound; errors name it as it is called.
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=NEW) as made:
                new = Path(made) / path.name
                self._bring(source, file, new, cancel, told)
                os.replace(new, path)
            write_json(note, _note(file))
        return path

    def _bring(self, source: Source, file: RemoteFile, path: Path, cancel: Cancel, told: Told | None) -> None:
        wanted = min(self._first, file.nbytes) if _is_headed(file) else file.nbytes
        if wanted > MOST:
            raise DownloadError(
                f"{file.path} of {file.repository} has {file.nbytes} bytes, more than such a file has beside a model: "
                "choose another model."
            )
        with path.open("xb", buffering=0) as target:
            come = _Coming(source, file, target, cancel, told)
            while True:
                come.up_to(wanted)
                if not _is_headed(file):
                    return
                try:
                    target.truncate(_header_bytes(path, file.nbytes))
                    return
                except MoreNeeded as more:
                    if more.nbytes <= wanted:
                        raise
                    wanted = min(max(more.nbytes, min(2 * wanted, MOST)), file.nbytes)

    def _forget(self) -> None:
        """Remove what was not looked at for longest, where too much is kept."""
        with contextlib.suppress(OSError):
            folders = [path for path in self._folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
            for path in sorted(folders, key=lambda path: path.stat().st_mtime)[:-REPOSITORIES]:
                shutil.rmtree(path, ignore_errors=True)
            for path in self._folder.glob(f"{NEW}*"):  # of a program that was killed
                if path.stat().st_mtime < time.time() - DAY:
                    shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _storage(self) -> Iterator[None]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            raise StorageError(
                f"What is known of models elsewhere cannot be kept in {self._folder}: {error.strerror or error}."
            ) from error


class _Coming:
    """A file's first bytes, on their way into `target`. What broke off is gone on with."""

    def __init__(self, source: Source, file: RemoteFile, target: BinaryIO, cancel: Cancel, told: Told | None) -> None:
        self._source, self._file, self._target, self._cancel = source, file, target, cancel
        self._told = told
        self._have = 0
        self._breaks = 0

    def up_to(self, wanted: int) -> None:
        """Raises what the source raises, and DownloadError where it sends less than the file is said to have."""
        while self._have < wanted:
            before = self._have
            problem = DownloadError(
                f"What comes of {self._file.path} of {self._file.repository} ends early, again and again. Try again "
                "later."
            )
            try:
                self._read(wanted)
            except DownloadError as error:
                problem = error
            if self._have < wanted:
                self._breaks += 1
                if self._have == before or self._breaks > BREAKS:
                    raise problem

    def _read(self, wanted: int) -> None:
        with self._source.open(self._file, self._have, self._cancel, wanted - 1) as stream:
            skip = self._have - stream.first
            for chunk in stream.chunks:
                self._cancel.check()
                part = chunk[skip:][: wanted - self._have]
                skip = max(skip - len(chunk), 0)
                self._target.write(part)
                self._have += len(part)
                if self._told is not None:
                    self._told(self._file.name, self._have)
                if self._have == wanted:
                    return


def _is_headed(file: RemoteFile) -> bool:
    return file.path.lower().endswith(HEADED)


def _header_bytes(path: Path, size: int) -> int:
    """Bytes of a file's header, all of which are there. Raises MoreNeeded where they are not, or as the readers do."""
    if path.name.lower().endswith(".gguf"):
        return gguf_header.read_header(path, size).nbytes
    safetensors.read_header(path, size)
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def _is_kept(file: RemoteFile, path: Path, note: Path) -> bool:
    try:
        kept = read_json(note)
        sound = all(kept.text(key) == value for key, value in _note(file).items())
        return sound and 0 < path.stat().st_size <= file.nbytes
    except (OSError, ValueError):
        return False


def _note(file: RemoteFile) -> dict[str, str]:
    return {"bytes": str(file.nbytes), "sha256": file.sha256, "git_sha1": file.git_sha1}


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def _listed(kept: Fields) -> Repository:
    """Raises ValueError for what `dataclasses.asdict` did not make."""
    files = tuple(
        RemoteFile(
            **{name: each.text(name) for name in ("source", "repository", "revision", "path", "sha256", "git_sha1")},
            nbytes=each.count("nbytes"),
        )
        for each in kept.each("files")
    )
    texts = {name: kept.text(name) for name in ("source", "id", "revision", "licence", "family", "updated")}
    counts = {name: kept.count(name) for name in ("downloads", "likes")}
    return Repository(**texts, **counts, gated=kept.flag("gated"), files=files)  # type: ignore[arg-type]
