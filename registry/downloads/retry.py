"""How long to wait before a download is tried again, and when to give up."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from engine.errors import DownloadError
from registry.downloads.transfer import WrongFileError
from registry.sources.source import AccessError, BusyError, GoneError

FIRST, LONGEST = 1.0, 60.0
"""Seconds of the first wait, and of the longest that the source did not ask for."""
PATIENCE = 600.0
"""The longest wait that a source can ask for; for a longer one the item pauses."""
TRIES = 9
"""So many tries without a byte more, some five minutes, and the item pauses."""


@dataclass
class Retry:
    """Exponential back-off with jitter, which begins anew whenever a try came further than all before it."""

    random: random.Random = field(default_factory=random.Random)
    _tries: int = 0
    _furthest: int = 0

    def after(self, error: DownloadError, done: int) -> float | None:
        """Seconds to wait, where `done` bytes are there; None where only a person can help."""
        if isinstance(error, AccessError | GoneError | WrongFileError):
            return None
        if done > self._furthest:
            self._furthest, self._tries = done, 0
        self._tries += 1
        asked = max(error.seconds or 0.0, 0.0) if isinstance(error, BusyError) else 0.0
        if self._tries >= TRIES or not asked <= PATIENCE:
            return None
        wait = min(FIRST * 2.0 ** (self._tries - 1), LONGEST)
        # Not all who were thrown out together come back together.
        return max(asked, wait / 2) + self.random.uniform(0.0, wait / 2)
