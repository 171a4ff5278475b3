"""The places where a slider can stand. No Qt."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

SHORT = 256
"""Positions of the shortest context that is offered, where a model's own is not shorter yet."""
UNKNOWN = 1 << 17
"""The longest that is offered where a file does not tell what its model was made for."""
FINENESS = 160
"""Steps from the least memory to the most."""


def memory_stops(least: int, most: int, given: int) -> tuple[int, ...]:
    """Bytes, each by about the same part more than the one before it, so that there is room to choose near the least.
    The ends are exact, and so is what is given where nothing is chosen; between them stand round numbers."""
    if least >= most:
        return (most,)
    ratio = (most / least) ** (1 / FINENESS)
    between = {_round(least * ratio**step) for step in range(1, FINENESS)}
    return _ordered({least, most, given, *between}, least, most)


def context_stops(longest: int | None, usual: int) -> tuple[int, ...]:
    """Positions: powers of two and thousands, up to the model's own."""
    top = longest or UNKNOWN
    powers = {1 << power for power in range(4, 31)}
    thousands = {step * count for step in (1_000, 10_000, 100_000, 1_000_000) for count in range(1, 10)}
    return _ordered({*powers, *thousands, top, usual}, min(SHORT, max(top // 8, 1)), top)


def nearest(stops: tuple[int, ...], value: int) -> int:
    """The number of the stop that is closest to a value."""
    after = min(bisect_left(stops, value), len(stops) - 1)
    before = max(after - 1, 0)
    return before if value - stops[before] < stops[after] - value else after


def _round(value: float) -> int:
    """To as much as is told of it: 8.0 GB, 120 MB."""
    step: int = 10 ** max(len(str(int(value))) - 2, 0)
    return round(value / step) * step


def _ordered(stops: Iterable[int], least: int, most: int) -> tuple[int, ...]:
    return tuple(sorted(stop for stop in stops if least <= stop <= most))
