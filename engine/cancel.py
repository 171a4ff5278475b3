"""How a caller stops work that is under way."""

from __future__ import annotations

import threading


class Cancelled(Exception):
    """A load or a download was cancelled. Not an error: nobody has to be told what to do about it."""


class Cancel:
    """A flag that one thread sets and the working thread looks at: before every prefill chunk, token and read.

    A cancelled reply ends with `Finished("cancelled", …)`; a cancelled load raises `Cancelled`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Ask the work to stop at its next look."""
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Cancelled` where the flag is set."""
        if self._event.is_set():
            raise Cancelled
