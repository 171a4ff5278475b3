"""Doing something often enough to look live, and no more often than that."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

Clock = Callable[[], float]


class Throttle:
    """Runs `action` at most once an `interval` (seconds), and never forgets the last call.

    The first call runs at once. One that comes too early asks `start_timer(seconds)` for a single shot, which must
    then call `fire`; further calls until then cost nothing. So there is no timer while nobody calls.
    """

    def __init__(
        self,
        interval: float,
        action: Callable[[], None],
        start_timer: Callable[[float], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._interval = interval
        self._action = action
        self._start_timer = start_timer
        self._clock = clock
        self._next = float("-inf")
        self._waiting = False

    def __call__(self) -> None:
        if self._waiting:
            return
        wait = self._next - self._clock()
        if wait <= 0:
            self._run()
        else:
            self._waiting = True
            self._start_timer(wait)

    def fire(self) -> None:
        """Run what waits, now. Does nothing where nothing waits."""
        if self._waiting:
            self._run()

    def drop(self) -> None:
        """Forget what waits."""
        self._waiting = False

    def _run(self) -> None:
        self._waiting = False
        self._next = self._clock() + self._interval
        self._action()


class Every:
    """Answers yes at most once an `interval` (seconds): for values of which only the latest matters."""

    def __init__(self, interval: float, clock: Clock = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._interval
        return True


class Rate:
    """Arrivals per second over the last `window` of them."""

    def __init__(self, window: int = 32, clock: Clock = time.monotonic) -> None:
        self._times: deque[float] = deque(maxlen=window)
        self._clock = clock

    def arrived(self) -> None:
        self._times.append(self._clock())

    @property
    def per_second(self) -> float | None:
        """None until two have arrived."""
        if len(self._times) < 2 or self._times[-1] <= self._times[0]:
            return None
        return (len(self._times) - 1) / (self._times[-1] - self._times[0])
