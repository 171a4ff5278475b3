"""The beginnings of models that are elsewhere: as much of each file as its header is, so that the engine can plan for a
model before it is here.

Of a GGUF or safetensors file the header comes, by ranges; what stands beside a checkpoint comes whole. All of it is
kept in a folder, by where it is from, so that a second look costs nothing and needs no network. Most of a GGUF file's
header is its vocabulary, which the other quantisations of a repository repeat at the same place: it is fetched once.
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
from engine.errors import DownloadError, ModelFileError, StorageError, UnsupportedModelError
from engine.formats import gguf_header, safetensors
from engine.formats.cursor import MoreNeeded
from registry.paths import safe_path
from registry.saved import Fields, read_json, write_json
from registry.sources.source import OfflineError, RemoteFile, Repository, Source

FIRST: Final = 1 << 20
"""Bytes that are asked for first. Where they are too few, twice as many are."""
MOST: Final = gguf_header.MAX_HEADER + 8
"""Bytes of a header, or of a file beside it, at most."""
HEAD: Final = 1 << 16
"""Bytes that are asked for first where a file of the same revision is known: enough to come to its vocabulary."""
ALIKE: Final = 4096
"""Bytes on either side by which a vocabulary is known to be the same."""
BREAKS: Final = 5
"""How often a connection may break while one file's beginning comes."""
REPOSITORIES: Final = 64
"""Of so many repositories' revisions the headers are kept: those that were looked at last."""
HEADED: Final = (".gguf", ".safetensors")
"""How files end of which the header is enough."""

FILES, NOTES = "files", "notes"
LONG_UNTIL: Final = "long_until"
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
        path, note = folder / FILES / steps, folder / NOTES / steps.with_name(f"{steps.name}.json")
        with self._storage():
            if _is_kept(file, path, note):
                os.utime(folder)
                return path
            path.parent.mkdir(parents=True, exist_ok=True)
            note.parent.mkdir(parents=True, exist_ok=True)
            # It gets its place when it is sound; errors name it as it is called.
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=NEW) as made:
                new = Path(made) / path.name
                twin = _twin(folder) if _is_gguf(path) else None
                try:
                    long_until = self._bring(source, file, new, twin, cancel, told)
                except (ModelFileError, UnsupportedModelError):
                    if twin is None:
                        raise
                    new.unlink()
                    long_until = self._bring(source, file, new, None, cancel, told)
                os.replace(new, path)
            write_json(note, {**_note(file), LONG_UNTIL: long_until})
        return path

    def _bring(
        self, source: Source, file: RemoteFile, path: Path, twin: Twin | None, cancel: Cancel, told: Told | None
    ) -> int:
        """Write a file's beginning: → where its vocabulary ends."""
        first = self._first if twin is None else min(self._first, HEAD)
        wanted = min(first, file.nbytes) if _is_headed(file) else file.nbytes
        if wanted > MOST:
            raise DownloadError(
                f"{file.path} of {file.repository} has {file.nbytes} bytes, more than such a file has beside a model: "
                "choose another model."
            )
        step = wanted
        with path.open("x+b") as target:
            come = _Coming(source, file, target, cancel, told)
            while True:
                come.up_to(wanted)
                target.flush()
                if not _is_headed(file):
                    return 0
                try:
                    nbytes, long_until = _header_bytes(path, file.nbytes)
                    target.truncate(nbytes)
                    return long_until
                except MoreNeeded as more:
                    if more.nbytes <= come.have:
                        raise
                    if twin is not None:
                        step = HEAD if come.go_on_after(twin) else self._first
                        twin = None
                    least = max(more.nbytes, min(come.have + step, MOST))
                    wanted, step = min(least, file.nbytes), 2 * step

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


@dataclass(frozen=True)
class Twin:
    """A header that is kept, with the byte at which its vocabulary ends."""

    path: Path
    long_until: int


def _twin(folder: Path) -> Twin | None:
    """Of the files that are kept of a revision, the one with the longest vocabulary."""
    found = []
    for note in (folder / NOTES).rglob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if long_until := read_json(note).count(LONG_UNTIL):
                path = folder / FILES / note.relative_to(folder / NOTES).with_suffix("")
                found.append(Twin(path, long_until))
    return max(found, key=lambda twin: twin.long_until, default=None)


class _Coming:
    """A file's first bytes, on their way into `target`. What broke off is gone on with."""

    def __init__(self, source: Source, file: RemoteFile, target: BinaryIO, cancel: Cancel, told: Told | None) -> None:
        self._source, self._file, self._target, self._cancel = source, file, target, cancel
        self._told = told
        self.have = 0
        self._breaks = 0

    def up_to(self, wanted: int) -> None:
        """Raises what the source raises, and DownloadError where it sends less than the file is said to have."""
        while self.have < wanted:
            before = self.have
            problem = DownloadError(
                f"What comes of {self._file.path} of {self._file.repository} ends early, again and again. Try again "
                "later."
            )
            try:
                self._read(wanted)
            except DownloadError as error:
                problem = error
            if self.have < wanted:
                self._breaks += 1
                if self.have == before or self._breaks > BREAKS:
                    raise problem

    def go_on_after(self, twin: Twin) -> bool:
        """Take what lies between here and the end of the twin's vocabulary from there, where both ends are alike at the
        same bytes: → whether they are. What a plan needs of it, its length, is then the same."""
        before, after = self.have - ALIKE, twin.long_until - ALIKE
        if before < 0 or after - self.have < HEAD:
            return False
        with contextlib.suppress(OSError, DownloadError):  # what is wrong shows again without a twin
            known = twin.path.read_bytes()
            self._target.seek(before)
            if self._target.read() != known[before : self.have]:
                return False
            last = min(len(known) + HEAD, self._file.nbytes) - 1
            with self._source.open(self._file, after, self._cancel, last) as stream:
                if stream.first != after:
                    return False
                data = b"".join(stream.chunks)
            # Kinds of words repeat: that a name follows shows that the vocabulary ends here.
            if data[:ALIKE] == known[after : twin.long_until] and _is_name(data[ALIKE:]):
                self._target.write(known[self.have : after])
                self._target.write(data)
                self.have = after + len(data)
                return True
        return False

    def _read(self, wanted: int) -> None:
        with self._source.open(self._file, self.have, self._cancel, wanted - 1) as stream:
            skip = self.have - stream.first
            for chunk in stream.chunks:
                self._cancel.check()
                part = chunk[skip:][: wanted - self.have]
                skip = max(skip - len(chunk), 0)
                self._target.write(part)
                self.have += len(part)
                if self._told is not None:
                    self._told(self._file.name, self.have)
                if self.have == wanted:
                    return


def _is_name(data: bytes) -> bool:
    """Whether a text of GGUF begins here that names something: a length of eight bytes, then letters."""
    length = int.from_bytes(data[:8], "little")
    letters = data[8 : 8 + min(length, 16)]
    return 0 < length <= gguf_header.MAX_NAME and letters.isascii() and letters.decode("ascii").isprintable()


def _is_headed(file: RemoteFile) -> bool:
    return file.path.lower().endswith(HEADED)


def _is_gguf(path: Path) -> bool:
    return path.name.lower().endswith(".gguf")


def _header_bytes(path: Path, size: int) -> tuple[int, int]:
    """Bytes of a file's header, all of which are there, and where its vocabulary ends. Raises MoreNeeded where some are
    missing, or as the readers do."""
    if _is_gguf(path):
        header = gguf_header.read_header(path, size)
        return header.nbytes, header.long_until
    safetensors.read_header(path, size)
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little"), 0


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
