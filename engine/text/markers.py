"""What a text that comes in pieces leaves undecided at its end."""

from __future__ import annotations

from collections.abc import Sequence


def undecided(text: str, markers: Sequence[str]) -> int:
    """Where the longest end of `text` begins that is the beginning of a marker: `len(text)` where there is none.

    A marker that stands in `text` as a whole is not looked for.
    """
    longest = max(map(len, markers), default=1)
    for at in range(max(0, len(text) - longest + 1), len(text)):
        rest = text[at:]
        if any(marker.startswith(rest) for marker in markers):
            return at
    return len(text)
