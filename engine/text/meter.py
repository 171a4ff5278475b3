"""What the rendering of one chat template may use: time, the size of a value, and what is made altogether."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

T = TypeVar("T")

_ALTOGETHER: Final = 64
"""So many times the limit of one value may be made in one rendering."""


class TemplateLimitError(Exception):
    """A template wanted more time or room than it may have."""


class Meter:
    """What one rendering may still use: `limit` characters and elements a value, `seconds` in all."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._left = limit * _ALTOGETHER
        self._output_left = limit

    def tick(self) -> None:
        """Raises TemplateLimitError where the time is up."""
        if time.monotonic() > self._deadline:
            raise TemplateLimitError(f"it ran for more than {self._seconds:g} seconds")

    def allow(self, size: int) -> None:
        """Raises TemplateLimitError where a value that is about to be made would be larger than the limit."""
        if size > self._limit:
            raise TemplateLimitError(f"it built a value of more than {self._limit} characters")

    def keep(self, value: T) -> T:
        """`value`, which was just made, if it is within the limits. A generator becomes a list."""
        self.tick()
        if isinstance(value, Iterator):
            return self._collect(value)  # type: ignore[return-value]
        self._take(self.size(value))
        return value

    def write(self, size: int) -> None:
        """Raises TemplateLimitError where so many more characters of output are too many."""
        self._output_left -= size
        if self._output_left < 0:
            raise TemplateLimitError(f"it wrote more than {self._limit} characters")

    def concat(self, parts: Sequence[object]) -> str:
        """The parts as one text. Raises TemplateLimitError where it would be larger than the limit."""
        self.tick()
        self.allow(sum(self.size(part) for part in parts))
        return self.keep("".join(map(str, parts)))

    def size(self, value: object) -> int:
        """Characters and elements, shared ones each time. Raises TemplateLimitError where it is past the limit."""
        if isinstance(value, str):
            self.allow(len(value))
            return len(value) + 1
        total = 0
        pending = [value]
        while pending:
            item = pending.pop()
            total += 1
            if isinstance(item, str):
                total += len(item)
            elif isinstance(item, int):
                if item.bit_length() > 64:
                    raise TemplateLimitError("it built a number of more than 64 bits")
            elif isinstance(item, Mapping):
                pending += item.keys()
                pending += item.values()
            elif isinstance(item, (list, tuple, AbstractSet, ValuesView)):
                pending += item
            elif isinstance(item, range):
                total += len(item)
            self.allow(total)
        return total

    def _collect(self, items: Iterator[object]) -> list[object]:
        collected = []
        total = 0
        for item in items:
            self.tick()
            total += self.size(item)
            self.allow(total)
            collected.append(item)
        self._take(total)
        return collected

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TemplateLimitError(f"it built more than {self._limit * _ALTOGETHER} characters altogether")
