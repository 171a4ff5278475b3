"""Reading values out of a checkpoint's JSON: typed, never trusted. Closer bounds are for whoever uses the values."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping

from engine.errors import ModelFileError

MAX_INTEGER = 2**63 - 1


class Fields:
    """The values of one JSON object; `where` it stands is named in errors. `null` counts as absent.

    A value that is absent without a default, or of another type, raises ModelFileError.
    """

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self._values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def get(self, key: str) -> object:
        """The value as it stands; `None` where it is absent."""
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._mistyped(key, "a whole number", value)
        if abs(value) > MAX_INTEGER:
            raise self._mistyped(key, f"a whole number of at most {MAX_INTEGER}", value)
        return value

    def number(self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e15) -> float:
        """A number from `low` to `high`."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._mistyped(key, "a number", value)
        if not low <= value <= high:
            raise self._mistyped(key, f"a number from {low} to {high}", value)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._mistyped(key, "text", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._mistyped(key, "true or false", value)
        return value

    def fields(self, key: str) -> Fields | None:
        """The object under `key`, if there is one."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._mistyped(key, "an object", value)
        return Fields(value, f"{key} in {self.where}")

    def merged(self, key: str) -> Fields:
        """These values, and over them those of the object under `key`."""
        inner = self.fields(key)
        if inner is None:
            raise ModelFileError(f"{self.where} lacks {key}: it is incomplete or damaged. Download it again.")
        own = {name: value for name, value in inner._values.items() if value is not None}
        return Fields({**self._values, **own}, self.where)

    def _get(self, key: str, default: object) -> object:
        value = self._values.get(key)
        if value is None:
            value = default
        if value is None:
            raise ModelFileError(f"{self.where} lacks {key}: it is incomplete or damaged. Download it again.")
        return value

    def _mistyped(self, key: str, kind: str, value: object) -> ModelFileError:
        return ModelFileError(
            f"{key} in {self.where} must be {kind}, not {reprlib.repr(value)}: it is damaged. Download it again."
        )
