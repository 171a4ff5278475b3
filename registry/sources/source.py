"""The seam of a place that models come from: what it lists, and how a file's bytes are read from it.

What a source returns is data alone; it raises `DownloadError` with one sentence, or one of its kinds below, so that the
queue knows whether to wait, to try again or to ask the person.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from engine.cancel import Cancel
from engine.errors import DownloadError


class OfflineError(DownloadError):
    """The source cannot be reached now, or was told not to be: waiting may help."""


class BusyError(DownloadError):
    """The source is overloaded or limits how often it is asked: try again after `seconds`, where it says so."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class AccessError(DownloadError):
    """The source refuses: a gated or private repository, a token that is missing or wrong. A person has to act, which
    is not done `by_token` where a proxy refuses."""

    def __init__(self, message: str, by_token: bool = True) -> None:
        super().__init__(message)
        self.by_token = by_token


class GoneError(DownloadError):
    """There is no such repository, revision or file. `hidden`: or it may only be seen with an access token."""

    def __init__(self, message: str, hidden: bool = False) -> None:
        super().__init__(message)
        self.hidden = hidden


def needs_token(error: BaseException) -> bool:
    """Whether another access token may be what helps."""
    return error.by_token if isinstance(error, AccessError) else isinstance(error, GoneError) and error.hidden


@dataclass(frozen=True)
class RemoteFile:
    """One file of a repository at one revision.

    `path` is as the source spells it, with "/" between parts, and is not yet safe to write to (`registry.paths`).
    `nbytes` is its whole size. `sha256` is in hex digits; "" where the source does not tell it. `git_sha1` is told of
    small files instead: sha1 of "blob", a blank, the size in digits, a NUL, and the bytes.
    """

    source: str
    repository: str
    revision: str
    path: str
    nbytes: int
    sha256: str = ""
    git_sha1: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Repository:
    """A model's page: `revision` is the commit that `files` are of; `files` is empty in the answer of a search.

    `licence` and `family` (the architecture as the source names it) are "" where the source does not tell, and
    `architecture` where it did not read it off a GGUF file.
    """

    source: str
    id: str
    revision: str = ""
    licence: str = ""
    family: str = ""
    architecture: str = ""
    gated: bool = False
    downloads: int = 0
    likes: int = 0
    updated: str = ""
    """The day of the last change, "2026-05-31"."""
    tags: tuple[str, ...] = ()
    files: tuple[RemoteFile, ...] = ()


@dataclass(frozen=True)
class Bytes:
    """A stream of a file's bytes from `first` on. A source that cannot start in the middle answers with `first` 0."""

    first: int
    total: int
    chunks: Iterator[bytes]


class Source(Protocol):
    """A place that models come from. Its calls block, belong off the window's thread, and end soon after `cancel`."""

    @property
    def name(self) -> str:
        """By which `RemoteFile.source` names it: "hub", "starter", "folder"."""
        ...

    def search(self, words: str, limit: int, cancel: Cancel) -> tuple[Repository, ...]:
        """The repositories that match, those that most people use first; they have no `files`."""
        ...

    def repository(self, id: str, cancel: Cancel, revision: str | None = None) -> Repository:
        """One repository with its files, at a named revision or the newest one."""
        ...

    def open(
        self, file: RemoteFile, first: int, cancel: Cancel, last: int | None = None
    ) -> AbstractContextManager[Bytes]:
        """The bytes `first` … `last` (inclusive, as in HTTP's Range) of a file, the rest of it without `last`.

        The chunks raise as the call does where the connection breaks; a stream that ends early just ends, so whoever
        reads it compares with `total`.
        """
        ...
