"""Small records on disk, which are either the old ones or the new ones, whatever happens while they are written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlast a loss of power. Windows does so by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder its other name, in one step that outlasts a loss of power. Raises OSError."""
    os.replace(source, target)
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())
    rename(new, path)


def read_json(path: Path) -> Fields:
    """Raises OSError where it cannot be read, ValueError where it is not what `write_json` wrote."""
    try:
        value = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deep") from None
    return Fields(value)


class Fields:
    """What a JSON object holds, each by its kind. Raises ValueError where it is of another kind, or absent."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        self._value = value

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if not isinstance(value, str):
            raise ValueError(f"{key} is not a text")
        return value

    def texts(self, *keys: str) -> dict[str, str]:
        return {key: self.text(key) for key in keys}

    def count(self, key: str) -> int:
        value = self._value.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{key} is not a count")
        return value

    def flag(self, key: str, absent: bool | None = None) -> bool:
        """`absent` is what it counts as where an earlier version wrote none."""
        value = self._value.get(key, absent)
        if not isinstance(value, bool):
            raise ValueError(f"{key} is not true or false")
        return value

    def fields(self, key: str) -> Fields:
        return Fields(self._value.get(key))

    def each(self, key: str) -> tuple[Fields, ...]:
        value = self._value.get(key)
        if not isinstance(value, list):
            raise ValueError(f"{key} is not a list")
        return tuple(Fields(entry) for entry in value)
