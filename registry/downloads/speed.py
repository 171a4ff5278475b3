"""How fast bytes come, and how often that is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 5.0
"""Seconds after which a moment counts for 1/e in the mean."""
SPAN = 0.5
"""Seconds that one measurement takes."""
SELDOM = 0.1
"""Seconds between two tellings of the same item."""


@dataclass
class Speed:
    """An exponentially weighted moving mean of bytes a second; the clock's seconds come in with each call."""

    _mean: float = 0.0
    _weight: float = 0.0
    _began: float = -math.inf
    _bytes: int = 0

    def add(self, nbytes: int, now: float) -> None:
        if self._began == -math.inf:
            self._began = now
        self._bytes += nbytes
        span = now - self._began
        if span >= SPAN:
            fresh = 1.0 - math.exp(-span / MEMORY)
            self._mean += fresh * (self._bytes / span - self._mean)
            self._weight += fresh * (1.0 - self._weight)
            self._began, self._bytes = now, 0

    def mean(self, now: float) -> float:
        """0 until enough came to say; it sinks while nothing comes."""
        if not self._weight:
            return 0.0
        silence = max(0.0, now - self._began - SPAN)
        return self._mean / self._weight * math.exp(-silence / MEMORY)
