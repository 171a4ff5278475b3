"""The Hub, as the environment and the keyring say it is at the moment. No Qt.

Both are asked with the first call, which is off the window's thread: a keyring may wait for the person.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.sources.hub import Hub
    from registry.sources.source import Bytes, RemoteFile, Repository


class LateHub:
    """A `Source`. A download that was begun goes on with the token that is new."""

    name = "hub"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hub: Hub | None = None

    def renew(self) -> None:
        """Ask the environment and the keyring again with the next call."""
        with self._lock:
            self._hub = None

    def search(self, words: str, limit: int, cancel: Cancel) -> tuple[Repository, ...]:
        return self._now().search(words, limit, cancel)

    def repository(self, id: str, cancel: Cancel, revision: str | None = None) -> Repository:
        return self._now().repository(id, cancel, revision)

    def open(
        self, file: RemoteFile, first: int, cancel: Cancel, last: int | None = None
    ) -> AbstractContextManager[Bytes]:
        return self._now().open(file, first, cancel, last)

    def _now(self) -> Hub:
        from registry.sources.hub import Hub

        with self._lock:
            if self._hub is None:
                self._hub = Hub.from_environment()
            return self._hub
