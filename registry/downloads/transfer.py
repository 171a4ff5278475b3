"""One file, from its source onto the disk: it goes on from what is there, and has its name only once its hash is right.

Beside the part lies a note that says of which file it is, and how much of it the disk surely has. A part is taken up
again from there; whatever stands behind it may be what a loss of power left.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from engine.cancel import Cancel
from engine.errors import DownloadError, StorageError
from registry.downloads.files import NOTE, PART, open_part, storage
from registry.downloads.waits import Bandwidth
from registry.saved import Fields, read_json, rename, write_json
from registry.sources.source import Bytes, OfflineError, RemoteFile, Source

CHUNK = 8 << 20
"""At most so many bytes are fetched once more after the program was killed."""
READ = 1 << 20


class WrongFileError(DownloadError):
    """What came is not the file that was promised; it was thrown away."""


def remote_fields(file: RemoteFile) -> dict[str, object]:
    return dict(vars(file))


def remote_file(fields: Fields) -> RemoteFile:
    """Raises ValueError."""
    texts = fields.texts("source", "repository", "revision", "path", "sha256", "git_sha1")
    return RemoteFile(nbytes=fields.count("nbytes"), **texts)


def same_bytes(one: RemoteFile, other: RemoteFile) -> bool:
    """Whether two files are the same for sure."""
    known = bool(one.sha256 or one.git_sha1)
    return one == other or (
        known and (one.nbytes, one.sha256, one.git_sha1) == (other.nbytes, other.sha256, other.git_sha1)
    )


def is_whole(path: Path, file: RemoteFile) -> bool:
    """Whether `path` is there with the size of `file`: only a verified file gets its name. Raises OSError."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(there.st_mode) and there.st_size == file.nbytes


def part_bytes(path: Path, file: RemoteFile) -> int:
    """How much of `file`, which is to be `path`, is surely on the disk. Raises OSError."""
    if is_whole(path, file):
        return file.nbytes
    with suppress(FileNotFoundError, ValueError):
        note = read_json(path.with_name(path.name + NOTE))
        if same_bytes(remote_file(note.fields("file")), file):
            return min(note.count("safe"), path.with_name(path.name + PART).stat().st_size, file.nbytes)
    return 0


def _git_sha1(path: Path, nbytes: int) -> str:
    """As Git names a file's content: the SHA-1 of "blob", its size, a NUL and its bytes. Raises OSError."""
    digest = hashlib.sha1(b"blob %d\0" % nbytes, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(READ):
            digest.update(piece)
    return digest.hexdigest()


def throw_away(path: Path) -> None:
    """Remove the part of `path` and its note. Raises OSError."""
    path.with_name(path.name + NOTE).unlink(missing_ok=True)
    path.with_name(path.name + PART).unlink(missing_ok=True)


@dataclass
class Transfer:
    """The way of `file` to `path`. `came` is told how much of it is there now; `chunk` is as CHUNK.

    It can be run again after an error, and then goes on without reading the disk again.
    """

    file: RemoteFile
    path: Path
    source: Source
    bandwidth: Bandwidth
    cancel: Cancel
    came: Callable[[int], None]
    chunk: int = CHUNK
    _digest: hashlib._Hash | None = field(default=None, init=False)
    _done: int = field(default=0, init=False)
    _safe: int = field(default=0, init=False)

    def run(self) -> None:
        """Have the file whole at `path`; at once where it is there with the right size.

        Raises DownloadError and its kinds: OfflineError where the stream broke off, WrongFileError for the wrong hash;
        StorageError; Cancelled.
        """
        with storage(self.path):
            if is_whole(self.path, self.file):
                return
            self.path.unlink(missing_ok=True)
            part = open_part(self.path.with_name(self.path.name + PART))
        with part:
            digest = self._take_up(part)
            if self._done < self.file.nbytes:
                self._fetch(part, digest)
        with storage(self.path):
            if self.file.sha256:
                self._compare("sha256", digest.hexdigest(), self.file.sha256)
            elif self.file.git_sha1:
                blob = _git_sha1(self.path.with_name(self.path.name + PART), self.file.nbytes)
                self._compare("git hash", blob, self.file.git_sha1)
            rename(self.path.with_name(self.path.name + PART), self.path)
            self.path.with_name(self.path.name + NOTE).unlink(missing_ok=True)

    def _compare(self, kind: str, found: str, promised: str) -> None:
        if found == promised.lower():
            return
        self._digest = None
        throw_away(self.path)
        raise WrongFileError(
            f"What came for {self.file.name} is not the file that {self.file.repository} promises: its {kind} is "
            f"{found[:12]}…, and {promised[:12]}… was promised. It was thrown away."
        )

    def _take_up(self, part: BinaryIO) -> hashlib._Hash:
        """Hash what is surely there, and stand behind it."""
        if self._digest is None:
            self._done = 0
            digest = hashlib.sha256()
            with storage(self.path):
                self._safe = part_bytes(self.path, self.file)
                while self._done < self._safe:
                    self.cancel.check()
                    piece = part.read(min(READ, self._safe - self._done))
                    if not piece:
                        break
                    digest.update(piece)
                    self._done += len(piece)
            self._safe, self._digest = self._done, digest
        with storage(self.path):
            part.truncate(self._done)
            part.seek(self._done)
        self.came(self._done)
        return self._digest

    def _fetch(self, part: BinaryIO, digest: hashlib._Hash) -> None:
        try:
            with self.source.open(self.file, self._done, self.cancel) as stream:
                self._read(part, digest, stream)
        except StorageError:
            self._digest = None  # how much the disk took is not known
            raise
        except OSError as error:
            self._secure(part)
            raise OfflineError(
                f"The connection broke off while {self.file.name} was downloaded ({error.strerror or error})."
            ) from error
        except BaseException:
            self._secure(part)
            raise
        self._secure(part)
        if self._done < self.file.nbytes:
            raise OfflineError(
                f"The connection ended after {self._done} of {self.file.nbytes} bytes of {self.file.name}."
            )

    def _read(self, part: BinaryIO, digest: hashlib._Hash, stream: Bytes) -> None:
        if stream.total != self.file.nbytes or not 0 <= stream.first <= self._done:
            raise DownloadError(
                f"The answer to the request for {self.file.name} is not the file: it has {stream.total} bytes from "
                f"{stream.first} on, and {self.file.nbytes} from {self._done} on were expected. A page to sign in to "
                "the network, or a proxy, may stand in between."
            )
        known = self._done - stream.first  # from a source that cannot start in the middle
        for data in stream.chunks:
            self.cancel.check()
            self.bandwidth.take(len(data), self.cancel)
            piece = memoryview(data)[known:]
            known = max(0, known - len(data))
            while piece and self._done < self.file.nbytes:
                step = self._safe + self.chunk // 2 - self._done
                self._write(part, digest, piece[: min(step, self.file.nbytes - self._done)])
                piece = piece[step:]
                if self._done >= self._safe + self.chunk // 2:
                    self._secure(part)
            if self._done == self.file.nbytes:
                return

    def _write(self, part: BinaryIO, digest: hashlib._Hash, piece: memoryview) -> None:
        digest.update(piece)
        with storage(self.path):
            while piece:
                written = part.write(piece)
                self._done += written
                piece = piece[written:]
        self.came(self._done)

    def _secure(self, part: BinaryIO) -> None:
        """Have the disk keep what came, and note how much that is."""
        if self._safe == self._done:
            return
        try:
            with storage(self.path):
                os.fsync(part.fileno())
                note = self.path.with_name(self.path.name + NOTE)
                write_json(note, {"file": remote_fields(self.file), "safe": self._done})
        except StorageError:
            self._digest = None
            raise
        self._safe = self._done
