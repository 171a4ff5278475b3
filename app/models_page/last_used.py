"""When each model was loaded last: a small record beside the settings, which may be deleted. No Qt."""

from __future__ import annotations

import contextlib
import threading
from datetime import date
from pathlib import Path


class LastUsed:
    """Days, "2026-05-31", by the path of the file or folder that was loaded. It belongs off the window's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def days(self) -> dict[str, str]:
        """All that is known; nothing where the record is absent or damaged."""
        from registry.saved import read_json

        try:
            fields = read_json(self._path)
            return {each.text("path"): each.text("day") for each in fields.each("models")}
        except (OSError, ValueError):
            return {}

    def used(self, model: Path, today: date | None = None) -> None:
        """A disk that refuses makes it forget: nothing depends on it."""
        from registry.saved import write_json

        with self._lock, contextlib.suppress(OSError):
            days = self.days() | {str(model): (today or date.today()).isoformat()}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"models": [{"path": path, "day": day} for path, day in days.items()]})
