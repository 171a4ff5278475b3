"""A source over the standard library's HTTP client, quick to start, for the Hub of the tests."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from engine.cancel import Cancel
from registry.downloads.record import Wanted
from registry.sources.source import (
    AccessError,
    BusyError,
    Bytes,
    GoneError,
    OfflineError,
    RemoteFile,
    Repository,
)

PIECE = 1 << 16


class PlainSource:
    """`name` is as RemoteFile's source."""

    name = "plain"

    def __init__(self, url: str) -> None:
        self.url = url

    def search(self, words: str, limit: int, cancel: Cancel) -> tuple[Repository, ...]:
        raise NotImplementedError

    def repository(self, id: str, cancel: Cancel, revision: str | None = None) -> Repository:
        raise NotImplementedError

    @contextmanager
    def open(self, file: RemoteFile, first: int, cancel: Cancel, last: int | None = None) -> Iterator[Bytes]:
        address = f"{self.url}/{file.repository}/resolve/{file.revision}/{quote(file.path)}"
        headers = {"Range": f"bytes={first}-{'' if last is None else last}"} if first or last is not None else {}
        try:
            answer = urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30)
        except urllib.error.HTTPError as error:
            with error:
                raise refusal(error, file) from None
        except (OSError, http.client.HTTPException) as error:
            raise OfflineError(f"The server cannot be reached ({type(error).__name__}).") from None
        with answer, cancel.on_set(lambda: hang_up(answer)):
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
            begins, total = (int(span[1]), int(span[2])) if span else (0, int(answer.headers["Content-Length"]))
            yield Bytes(begins, total, chunks(answer))


def hang_up(answer: http.client.HTTPResponse) -> None:
    """Have a read that waits in another thread end."""
    import socket

    raw = getattr(answer.fp, "raw", None)
    if raw is not None:
        raw._sock.shutdown(socket.SHUT_RDWR)


def chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            piece = answer.read1(PIECE)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            raise OfflineError(f"The connection broke off ({type(error).__name__}).") from None
        if not piece:
            return
        yield piece


def refusal(error: urllib.error.HTTPError, file: RemoteFile) -> Exception:
    if error.code in (401, 403):
        return AccessError(f"{file.repository} is not open to everybody: ask for access on its page.")
    if error.code == 404:
        return GoneError(f"{file.repository} has no file {file.path} any more.")
    if error.code == 429 or error.code >= 500:
        asked = error.headers.get("Retry-After")
        return BusyError(f"The server is busy ({error.code}).", float(asked) if asked else None)
    return OfflineError(f"The server answered {error.code}.")


def wanted(hub, repository: str, name: str, *paths: str, folder: bool = False) -> Wanted:
    """Files of a repository of the test's Hub, the first of which opens the model unless it is the `folder`."""
    files = tuple(
        RemoteFile(
            "plain",
            repository,
            hub.commit(repository),
            path,
            len(hub._file(f"{repository}/{path}").content),
            hub.sha256(f"{repository}/{path}"),
        )
        for path in paths
    )
    return Wanted(name, files, None if folder else files[0], "apache-2.0")
