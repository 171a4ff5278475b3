"""Work off the window's thread, whose ends are told in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from PySide6.QtCore import QCoreApplication, QObject, Signal

from app.places import log_file
from engine.cancel import Cancel, Cancelled
from engine.errors import MillstreamError

Made = TypeVar("Made")
Failed = Callable[[str, BaseException], None]

PROMPT = 2.0
"""Seconds that `close` waits for what hangs."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    work: Callable[[Cancel], Any]
    then: Callable[[Any], None]
    failed: Failed | None
    cancel: Cancel
    made: Any = None
    error: BaseException | None = None


class Tasks(QObject):
    """A few threads, which begin with the first work. They do not keep the program from ending: a keyring or a drive
    that never answers holds one of them for good."""

    _ended = Signal(object)

    def __init__(self, parent: QObject | None = None, threads: int = 3) -> None:
        super().__init__(parent)
        self._most = threads
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._jobs: set[_Job] = set()
        self._closed = False
        self._ended.connect(self._deliver)

    def run(
        self,
        work: Callable[[Cancel], Made],
        then: Callable[[Made], None],
        failed: Failed | None = None,
        cancel: Cancel | None = None,
    ) -> Cancel:
        """Call `work` in a thread, and `then` with what it made in this one; or `failed` with a sentence.

        → what cancels it: neither of the two is called then, also where the work was done already.
        """
        job = _Job(work, then, failed, cancel or Cancel())
        if self._closed:
            return job.cancel
        self._jobs.add(job)
        self._queue.put(job)
        if len(self._threads) < min(self._most, len(self._jobs)):
            thread = threading.Thread(target=self._serve, name="models page", daemon=True)
            self._threads.append(thread)
            thread.start()
        return job.cancel

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def close(self) -> None:
        """Cancel all; a second call does nothing."""
        self._closed = True
        for job in self._jobs:
            job.cancel.set()
        self._jobs.clear()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join(PROMPT)

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job.cancel.check()
                job.made = job.work(job.cancel)
            except BaseException as error:  # a panic in a library written in Rust is not an Exception
                job.error = error
            if not self._closed:
                self._ended.emit(job)

    def _deliver(self, job: _Job) -> None:
        self._jobs.discard(job)
        if self._closed or job.cancel.is_set() or isinstance(job.error, Cancelled):
            return
        if job.error is None:
            job.then(job.made)
            return
        sentence = sentence_of(job.error)
        if job.failed is not None:
            job.failed(sentence, job.error)


def sentence_of(error: BaseException) -> str:
    """What the person is told. A fault of ours is one plain sentence to them, and a traceback in the log."""
    if isinstance(error, MillstreamError):
        log.info("%s: %s", type(error).__name__, error)
        return str(error)
    log.error("a fault on the Models page", exc_info=error)
    return QCoreApplication.translate(
        "Tasks", "Something went wrong inside Millstream. Trying again may help; what happened stands in {log}."
    ).format(log=log_file())
