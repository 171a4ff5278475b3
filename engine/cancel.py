"""How a caller stops work that is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from engine.errors import BudgetError

Made = TypeVar("Made")


class Cancelled(Exception):
    """A load or a download was cancelled. Not an error: nobody has to be told what to do about it."""


class Cancel:
    """A flag that one thread sets and the working thread looks at: before every prefill chunk, token and read.

    A cancelled reply ends with `Finished("cancelled", …)`; a cancelled load raises `Cancelled`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        # A signal's handler may set the flag in the midst of what its own thread does here.
        self._lock = threading.RLock()

    def set(self) -> None:
        """Ask the work to stop at its next look."""
        self._event.set()
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Cancelled` where the flag is set."""
        if self._event.is_set():
            raise Cancelled

    @contextmanager
    def on_set(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within it, `callback` is called when the flag is set, by the thread that sets it; at once where it is set
        already. It may be called once more just after."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            if self.is_set():
                callback()
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


def patiently(function: Callable[[], Made], cancel: Cancel | None) -> Made:
    """What the function gives, or raises, as long as nobody cancels: `Cancelled` is raised at once then, however long
    the function may hang, as opening a file does whose disk is gone. It is left to its own thread, and what comes of
    it to nobody. Without `cancel` it is waited for. Raises BudgetError where the system refuses the thread."""
    if cancel is None:
        return function()
    cancel.check()
    made: list[Made] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        try:
            made.append(function())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    try:
        threading.Thread(target=work, name="patient", daemon=True).start()
    except RuntimeError as error:
        raise BudgetError("The system refused a thread for opening files: close other programs.") from error
    with cancel.on_set(ended.set):
        ended.wait()
    cancel.check()
    if failed:
        raise failed.pop()  # which holds this frame, and must not be held by it
    return made[0]
