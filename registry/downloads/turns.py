"""Whose turn it is: so many items at once, in their order, and none that the disk has no room for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import StorageError
from registry.downloads.files import storage
from registry.downloads.item import RUNNING, Entry


@dataclass
class Turns:
    """Of the queue's `entries`, which are in their order and guarded by its lock, as all that is here.

    `margin` is in bytes, those that downloads leave free.
    """

    entries: Mapping[str, Entry]
    lock: threading.Condition
    at_once: int
    root: Path
    margin: int
    _standing: set[str] = field(default_factory=set, init=False)
    _busy: set[str] = field(default_factory=set, init=False)
    _admitted: set[str] = field(default_factory=set, init=False)

    def stand(self, id: str) -> None:
        """Let the item stand in line from now on."""
        with self.lock:
            self._standing.add(id)

    @contextmanager
    def turn(self, id: str, cancel: Cancel) -> Iterator[None]:
        """Within it the item is one of those that are worked on. Raises Cancelled."""
        with self.lock:
            self._standing.add(id)
            try:
                while not cancel.is_set() and not self._is_next(id):
                    self.lock.wait()
                cancel.check()
            finally:
                self._standing.discard(id)
                self.lock.notify_all()
            self._busy.add(id)
        try:
            yield
        finally:
            with self.lock:
                self._busy.discard(id)
                self.lock.notify_all()

    def _is_next(self, id: str) -> bool:
        return len(self._busy) < self.at_once and id == next(other for other in self.entries if other in self._standing)

    def admit(self, id: str, missing: int) -> None:
        """Raises StorageError where the disk has no room for `missing` bytes more: what those need that came before,
        or were admitted before, is not free."""
        with self.lock:
            others = [other for other in self.entries.values() if other.folder.id != id]
            earlier = set(list(self.entries)[: list(self.entries).index(id)]) if id in self.entries else set()
            before = sum(
                other.missing
                for other in others
                if other.state == "elsewhere"
                or (other.state in RUNNING and (other.folder.id in earlier or other.folder.id in self._admitted))
            )
            with storage(self.root):
                free = shutil.disk_usage(self.root).free
            if missing and missing + before + self.margin > free:
                also = f", the downloads before it {before / 1e6:,.1f} MB" if before else ""
                raise StorageError(
                    f"The disk that holds {self.root} has too little room: {free / 1e6:,.1f} MB are free, this model "
                    f"still needs {missing / 1e6:,.1f} MB{also}, and {self.margin / 1e6:,.1f} MB are to stay free. "
                    "Free some space, then resume the download."
                )
            self._admitted.add(id)

    def leave(self, id: str) -> None:
        """The item is not worked on any more, and needs no room."""
        with self.lock:
            self._admitted.discard(id)
            self._standing.discard(id)
            self.lock.notify_all()
