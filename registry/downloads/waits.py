"""Waiting: by a clock that can be another one in tests, broken off at once, and for a share of the bandwidth."""

from __future__ import annotations

import threading
import time

from engine.cancel import Cancel


class Time:
    """The clock that does not jump when somebody sets it."""

    def now(self) -> float:
        """In seconds from a beginning of its own."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Let go of the held `condition` until it is notified, for at most `seconds`."""
        condition.wait(seconds)


class Bandwidth:
    """At most `rate` bytes a second for all downloads together, or as many as come where it is None.

    A bucket of tokens, one a byte: it holds at most a second's, and whoever takes more than is there waits until the
    debt is paid, so that pieces of any size pass.
    """

    def __init__(self, rate: int | None, clock: Time) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._rate = rate
        self._tokens = 0.0
        self._then = clock.now()

    @property
    def rate(self) -> int | None:
        return self._rate

    def set(self, rate: int | None) -> None:
        """Those who wait now wait by the new rate."""
        with self._changed:
            self._fill()
            self._rate = rate
            self._changed.notify_all()

    def take(self, nbytes: int, cancel: Cancel) -> None:
        """Count `nbytes` that came, and wait for as long as they were too many. Raises Cancelled."""

        def wake() -> None:
            with self._changed:
                self._changed.notify_all()

        with cancel.on_set(wake), self._changed:
            self._fill()
            self._tokens -= nbytes
            while self._rate is not None and self._tokens <= -1 and not cancel.is_set():
                self._clock.wait(self._changed, -self._tokens / self._rate)
                self._fill()
        cancel.check()

    def _fill(self) -> None:
        now = self._clock.now()
        if self._rate is None:
            self._tokens = 0.0
        else:
            self._tokens = min(self._tokens + (now - self._then) * self._rate, float(self._rate))
        self._then = now
