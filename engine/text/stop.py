"""Stop strings, looked for in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import SettingsError
from engine.text.markers import undecided


class StopStrings:
    """Lets a text through up to the stop string that is complete first, however the text is cut into pieces.

    Of two that become complete with the same character the longer counts. `matched` is the one that was found. What
    could be the beginning of a stop string is held back until the next piece decides.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises SettingsError on an empty stop string."""
        if not all(stops):
            raise SettingsError("A stop string is empty. Leave it out, or give it at least one character.")
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """What of the text so far is safe to show and was not returned before. Nothing once a stop was matched."""
        if self.matched is not None:
            return ""
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, at, self.matched = min(ends)
            self._held = ""
            return text[:at]
        safe = undecided(text, self._stops)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """What was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held
