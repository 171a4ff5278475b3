"""The downloads of a library: several at once, in the order in which they came, each paused, resumed or removed alone.

Each item has a thread of its own while it is neither paused nor done; it lies still until its turn comes, and lets
others pass while it waits for a source. What is known lies in records on the disk, so that another start goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import DownloadError, ModelFileError, StorageError
from registry.downloads.item import RUNNING, Entry, Item
from registry.downloads.record import ItemFolder, Record, Wanted, left_behind
from registry.downloads.speed import Speed
from registry.downloads.transfer import CHUNK
from registry.downloads.turns import Turns
from registry.downloads.verify import origin
from registry.downloads.waits import Bandwidth, Time
from registry.downloads.worker import ELSEWHERE, Worker
from registry.library import Library
from registry.refusals import storage
from registry.sources.source import Source

MARGIN = 256 << 20
"""Bytes of the disk that downloads leave free."""
PROMPT = 2.0
"""Seconds that `close` and `remove` wait for a read which hangs."""
DAMAGED = "The record of this download is damaged, so it cannot go on. Remove it, and download the model again."


class Downloads:
    """All methods can be called from any thread, and raise `StorageError` where the library's disk refuses."""

    def __init__(
        self,
        library: Library,
        sources: Iterable[Source],
        *,
        at_once: int = 2,
        on_change: Callable[[Item], None] | None = None,
        rate: int | None = None,
        go_on: bool = False,
        margin: int = MARGIN,
        chunk: int = CHUNK,
        clock: Time | None = None,
    ) -> None:
        """Items that an earlier run left are there again: with `go_on` those that were not paused continue, else all
        are paused. `on_change` is called by the workers, at most some ten times a second for each item; it may not
        call `close`. `rate` is in bytes a second for all together.
        """
        self._library = library
        self._root = library.root
        self._on_change = on_change
        self._clock = clock or Time()
        self._bandwidth = Bandwidth(rate, self._clock)
        self._state = threading.Condition(threading.RLock())
        self._telling = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._closed = False
        self._was_there = os.path.isdir(self._root)
        self._worker = Worker(
            lock=self._state,
            turns=Turns(self._entries, self._state, at_once, self._root, margin),
            sources={source.name: source for source in sources},
            bandwidth=self._bandwidth,
            clock=self._clock,
            chunk=chunk,
            tell=self._tell,
        )
        self._restore(go_on)

    def items(self) -> tuple[Item, ...]:
        """All of them, in their order. What another program downloads is looked at anew."""
        with self._state:
            for entry in [entry for entry in self._entries.values() if entry.state == "elsewhere"]:
                self._look(entry)
            now = self._clock.now()
            return tuple(entry.snapshot(now) for entry in self._entries.values())

    def add(self, wanted: Wanted) -> Item:
        """Download it, or go on with it where it was begun. Raises DownloadError for what cannot be kept on a disk."""
        wanted.check()
        self._have_root()
        self._rest(wanted.id)
        with self._state:
            self._check_open()
            entry = self._entries.get(wanted.id)
            if entry is not None and entry.state in (*RUNNING, "elsewhere"):
                return entry.snapshot(self._clock.now())
            folder = ItemFolder(self._root, wanted.id)
            record = Record(wanted, False, "", _moment())
            with folder.alone(new=True) as alone:
                if alone:
                    record = folder.renew(record)
            former = entry.thread if entry is not None else None
            entry = Entry(folder, record, "queued", thread=former)
            if not alone and (former is None or not former.is_alive()):
                entry.state, entry.sentence = "elsewhere", ELSEWHERE
            self._measure(entry)
            self._entries.pop(wanted.id, None)
            self._entries[wanted.id] = entry
            if entry.state == "queued":
                self._start(entry)
        return self._tell(entry)

    def repair(self, folder: Path) -> Item:
        """Download the damaged files of a model anew, those that `verify` found; meanwhile it is not in the library.

        Raises ModelFileError where nothing is known of where it is from, or where what is damaged cannot be had from
        there, and what `add` raises.
        """
        kept, wanted = origin(folder)
        wanted.check()
        if folder.resolve() != self._root.joinpath(*wanted.steps()).resolve():
            raise ModelFileError(
                f"{kept.name} was moved to {folder}, so it cannot be repaired there: download it again."
            )
        known = self._worker.sources
        if lost := [file.name for file in kept.files if file.damaged and file.source not in known]:
            raise ModelFileError(
                f"{kept.name} cannot be repaired: {', '.join(lost)} came from this machine, and cannot be downloaded. "
                "Remove the model, and import it again."
            )
        if kept.damaged:
            item = ItemFolder(self._root, wanted.id)
            with item.alone(new=True) as alone:
                if not alone:
                    raise StorageError(f"{kept.name} is being downloaded by another program already.")
                item.renew(Record(wanted, True, "", _moment(), repair=True))
                item.take_back(folder, kept.damaged)
        return self.add(wanted)

    def pause(self, id: str) -> None:
        """Stop it where it is; nothing that came is lost."""
        with self._state:
            entry = self._entries[id]
            if entry.state not in RUNNING:
                return
            entry.cancel.set()
            self._worker.pause(entry, "")
        self._tell(entry)

    def resume(self, id: str) -> None:
        """Go on with a paused one, at once with one that waits."""
        self._library.require_there()
        with self._state:
            self._check_open()
            entry = self._entries[id]
            if entry.state == "waiting":
                entry.until = self._clock.now()
                self._state.notify_all()
            elif entry.state in ("paused", "elsewhere") and entry.record is not None:
                self._start(entry)
            else:
                return
        self._tell(entry)

    def remove(self, id: str) -> None:
        """Stop it, and delete what came of it; a model that is whole stays in the library, and one that was being
        repaired is there again, damaged as far as it is.

        Raises StorageError where another program downloads it, or what is whole of a repair has no place to go to.
        """
        with self._state:
            entry = self._entries[id]
            entry.cancel.set()
            if entry.state in RUNNING:
                self._worker.set(entry, "paused")
        self._rest(id)
        if entry.folder.path.exists():
            with entry.folder.alone() as alone:
                if not alone:
                    name = entry.record.wanted.name if entry.record else id
                    raise StorageError(f"{name} is still being downloaded, here or by another Millstream.")
                if entry.record is not None:
                    entry.folder.give_back(entry.record)
                entry.folder.forget()
        with self._state:
            self._entries.pop(id, None)
            self._worker.set(entry, "removed")
        self._tell(entry)

    def set_rate(self, rate: int | None) -> None:
        """Bytes a second for all together; None is without a limit."""
        self._bandwidth.set(rate)

    @property
    def rate(self) -> int | None:
        return self._bandwidth.rate

    def close(self) -> None:
        """Stop all; those that were not paused are to go on at the next start. Soon, even while a read hangs."""
        with self._state:
            self._closed = True
            running = [entry for entry in self._entries.values() if entry.state in RUNNING]
            for entry in running:
                entry.cancel.set()
                self._worker.set(entry, "paused")
            threads = [entry.thread for entry in self._entries.values() if entry.thread is not None]
        end = time.monotonic() + PROMPT
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def __enter__(self) -> Downloads:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rest(self, id: str) -> None:
        """Wait until the thread of an item that does not run has ended, but not for a read that hangs."""
        with self._state:
            entry = self._entries.get(id)
            thread = entry.thread if entry is not None and entry.state not in RUNNING else None
        if thread is not None and thread is not threading.current_thread():
            thread.join(PROMPT)

    def _have_root(self) -> None:
        """The library's folder, made where it never was: one that was there is gone with its drive, and nothing may be
        kept at the place where that was joined. Raises StorageError."""
        self._library.require_there()
        if self._was_there and not os.path.isdir(self._root):
            raise StorageError(
                f"The models folder {self._root} is gone. If it is on another drive, connect that again, and try again."
            )
        with storage(self._root):
            self._root.mkdir(parents=True, exist_ok=True)
        self._was_there = True

    def _check_open(self) -> None:
        if self._closed:
            raise DownloadError("The downloads are closed: start Millstream again.")

    def _restore(self, go_on: bool) -> None:
        entries = []
        for folder in left_behind(self._root):
            try:
                record = folder.read()
            except FileNotFoundError:
                self._sweep(folder)
                continue
            except (OSError, ValueError, DownloadError):
                entries.append(Entry(folder, None, "paused", DAMAGED))
                continue
            entry = Entry(folder, record, "paused", record.sentence)
            with suppress(StorageError):
                self._measure(entry)
            entries.append(entry)
        entries.sort(key=lambda entry: entry.record.added if entry.record else "")
        with self._state:
            for entry in entries:
                self._entries[entry.folder.id] = entry
                if entry.record is not None and go_on and not entry.record.paused:
                    self._start(entry)
                elif entry.record is not None:
                    self._look(entry)

    def _sweep(self, folder: ItemFolder) -> None:
        """Clear away what was removed or finished when the program was killed."""
        with suppress(StorageError), folder.alone() as alone:
            if alone and not folder.exists():
                folder.forget()

    def _look(self, entry: Entry) -> None:
        """Whether another program has the item, has done with it, or has left it."""
        with entry.folder.alone() if entry.folder.path.exists() else _nobody() as alone:
            if not entry.folder.exists():
                self._entries.pop(entry.folder.id, None)
                self._worker.set(entry, "removed")
                return
            with suppress(OSError, ValueError, DownloadError):
                entry.record = entry.folder.read()
        assert entry.record is not None
        self._measure(entry)
        entry.state = "paused" if alone else "elsewhere"
        entry.sentence = entry.record.sentence if alone else ELSEWHERE

    def _measure(self, entry: Entry) -> None:
        if entry.record is not None:
            entry.files = entry.folder.done(entry.record.wanted)
            entry.shown = max(entry.shown, sum(entry.files.values()))

    def _start(self, entry: Entry) -> None:
        entry.cancel = Cancel()
        entry.speed = Speed()
        self._worker.set(entry, "queued")
        self._worker.start(entry)

    def _tell(self, entry: Entry) -> Item:
        with self._telling:  # else an older state could be told after a newer one
            with self._state:
                now = self._clock.now()
                item = entry.snapshot(now)
                entry.told = now
            if self._on_change is not None and not self._closed:
                self._on_change(item)
        return item


def _moment() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


@contextmanager
def _nobody() -> Iterator[bool]:
    yield True
