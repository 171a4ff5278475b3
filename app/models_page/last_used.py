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
        with self._lock:
            self._write(self.days() | {str(model): (today or date.today()).isoformat()})

    def moved(self, old: Path, new: Path) -> None:
        """The models that were in one folder are in another now."""
        with self._lock:
            self._write({_there(path, old, new): day for path, day in self.days().items()})

    def _write(self, days: dict[str, str]) -> None:
        from registry.saved import write_json

        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"models": [{"path": path, "day": day} for path, day in days.items()]})


def _there(path: str, old: Path, new: Path) -> str:
    return str(new / Path(path).relative_to(old)) if Path(path).is_relative_to(old) else path
