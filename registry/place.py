"""Which folder the models are in: `MILLSTREAM_HOME` says so, or a small file of settings, or it is the system's usual.

While a library moves, the file names both places, so that it is found whenever the move is cut off.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from platformdirs import user_config_path, user_data_path

from registry.refusals import storage
from registry.saved import Fields, read_json, sync_folder, write_json

MARKER: Final = ".millstream-library"
"""A file in a library that a person chose a place for: without it, the drive is not there."""


def usual_folder() -> Path:
    """Where the models are as long as nobody chose another folder."""
    return user_data_path("millstream", appauthor=False) / "models"


def settings_file() -> Path:
    return user_config_path("millstream", appauthor=False) / "library.json"


def from_environment() -> Path | None:
    """The folder in `MILLSTREAM_HOME`, which comes before the settings."""
    home = os.environ.get("MILLSTREAM_HOME")
    return Path(home).expanduser() / "models" if home else None


@dataclass(frozen=True)
class Place:
    """`models` is the folder in use. `coming` is where it is being moved to, or was until that was cut off; `leaving`
    where it was moved from as long as something may be left there; None where that is not so. `chosen`: not the
    system's usual one."""

    models: Path
    chosen: bool = False
    coming: Path | None = None
    leaving: Path | None = None

    @classmethod
    def read(cls, settings: Path | None = None) -> Place:
        """That of the settings, which may be absent. A damaged file counts as absent."""
        if settings is None and (folder := from_environment()) is not None:
            return cls(folder)
        try:
            record = read_json(settings or settings_file())
            models = _path(record, "models")
            coming, leaving = _path(record, "coming"), _path(record, "leaving")
        except (OSError, ValueError):
            models = coming = leaving = None
        place = cls(models or usual_folder(), models is not None, coming, leaving)
        if coming is not None and not place.models.exists() and marker_id(coming):
            return cls(coming, True)  # it was renamed, and then cut off
        return place

    def write(self, settings: Path | None = None) -> None:
        """Raises `StorageError`."""
        path = settings or settings_file()
        fields = {"models": self.models if self.chosen else None, "coming": self.coming, "leaving": self.leaving}
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {name: str(value or "") for name, value in fields.items()})


def marker_id(folder: Path) -> str:
    """What marks this library alone; "" where there is no marker."""
    try:
        return read_json(folder / MARKER).text("id")
    except (OSError, ValueError):
        return ""


def mark(folder: Path, id: str = "") -> str:
    """Have a marker in a folder, made where it is not there: → its id. Raises `StorageError`."""
    if there := marker_id(folder):
        return there
    id = id or uuid.uuid4().hex
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / MARKER, {"id": id, "what": "Models that Millstream keeps. Do not delete this file."})
        sync_folder(folder.parent)
    return id


def choose(folder: Path, settings: Path | None = None) -> None:
    """Have the models be in this folder from now on, without moving any. Raises `StorageError`."""
    folder = folder.expanduser().absolute()
    mark(folder)
    Place(folder, True).write(settings)


def _path(record: Fields, key: str) -> Path | None:
    text = record.text(key)
    return Path(text) if text else None
