"""What the thread of one item does: wait for its turn, work, wait for the source, and end with a state that is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError, MillstreamError, StorageError
from registry.downloads.item import Entry, Item, State
from registry.downloads.job import Job
from registry.downloads.record import Record
from registry.downloads.retry import Retry
from registry.downloads.speed import SELDOM
from registry.downloads.turns import Turns
from registry.downloads.waits import Bandwidth, Time
from registry.sources.source import Source, needs_token

ELSEWHERE = "Another Millstream is downloading this model."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """What all items share. `tell` passes on what an entry is now; `lock` guards the entries."""

    lock: threading.Condition
    turns: Turns
    sources: Mapping[str, Source]
    bandwidth: Bandwidth
    clock: Time
    chunk: int
    tell: Callable[[Entry], Item | None]

    def start(self, entry: Entry) -> None:
        """Have a thread of its own work on an item that is in the queue."""
        former = entry.thread if entry.thread is not None and entry.thread.is_alive() else None
        if former is None:
            self.turns.stand(entry.folder.id)
        entry.thread = threading.Thread(
            target=self._work, args=(entry, entry.cancel, former), name=f"download {entry.folder.id}", daemon=True
        )
        entry.thread.start()

    def set(self, entry: Entry, state: State, sentence: str = "") -> None:
        with self.lock:
            entry.state, entry.sentence = state, sentence
            self.lock.notify_all()

    def pause(self, entry: Entry, sentence: str, *, needs_token: bool = False) -> None:
        """For good, until somebody resumes it. A full disk may not take the record: the item still pauses."""
        with self.lock:
            self.set(entry, "paused", sentence)
            if entry.record is not None:
                entry.record = replace(entry.record, paused=True, sentence=sentence, needs_token=needs_token)
                with suppress(StorageError):
                    entry.folder.write(entry.record)

    def _work(self, entry: Entry, cancel: Cancel, former: threading.Thread | None) -> None:
        if former is not None:
            former.join()

        def wake() -> None:
            with self.lock:
                self.lock.notify_all()

        with cancel.on_set(wake):
            try:
                self._alone(entry, cancel)
            except Cancelled:
                return
            except Exception as error:
                sentence = str(error)
                if not isinstance(error, MillstreamError):
                    log.exception("A download stopped")
                    sentence = "The download stopped at a fault in Millstream. What came is kept: resume it."
                with self.lock:
                    if cancel.is_set():
                        return
                    self.pause(entry, sentence, needs_token=needs_token(error))
            finally:
                self.turns.leave(entry.folder.id)
            self.tell(entry)

    def _alone(self, entry: Entry, cancel: Cancel) -> None:
        """Have the item done, unless another program works on it. Raises MillstreamError, and Cancelled."""
        with entry.folder.alone() as alone:
            if not alone:
                with self.lock:
                    cancel.check()
                    self.set(entry, "elsewhere", ELSEWHERE)
                return
            with self.lock:
                cancel.check()
                assert entry.record is not None
                record = entry.record = replace(entry.record, paused=False, sentence="", needs_token=False)
                entry.folder.write(record)
            path = self._run(entry, record, cancel)
            with self.lock, suppress(StorageError):
                entry.path = path
                self.set(entry, "done")
                entry.folder.forget()

    def _run(self, entry: Entry, record: Record, cancel: Cancel) -> Path:
        """Try until it is whole: → the model's folder."""
        id = entry.folder.id

        def step(state: State) -> None:
            with self.lock:
                cancel.check()
                if entry.state == state:
                    return
                self.set(entry, state)
            self.tell(entry)

        def came(name: str, done: int) -> None:
            with self.lock:
                now = self.clock.now()
                entry.came(name, done, now)
                if cancel.is_set() or now - entry.told < SELDOM:
                    return
            self.tell(entry)

        def room(missing: int) -> None:
            self.turns.admit(id, missing)

        job = Job(entry.folder, record, self.sources, self.bandwidth, cancel, step, came, room, self.chunk)
        retry = Retry()
        while True:
            with self.turns.turn(id, cancel):
                try:
                    return job.run()
                except DownloadError as error:
                    seconds = retry.after(error, sum(entry.files.values()))
                    if seconds is None:
                        raise
                    sentence = str(error)
            self._wait(entry, cancel, seconds, sentence)

    def _wait(self, entry: Entry, cancel: Cancel, seconds: float, sentence: str) -> None:
        with self.lock:
            cancel.check()
            entry.until = self.clock.now() + seconds
            self.set(entry, "waiting", sentence)
        self.tell(entry)
        with self.lock:
            while (left := entry.until - self.clock.now()) > 0 and not cancel.is_set():
                self.clock.wait(self.lock, left)
            cancel.check()
            self.set(entry, "queued")
        self.tell(entry)
