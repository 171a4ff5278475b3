"""Reading an architecture's numbers out of a file's metadata: typed, bounded, never trusted."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence

from engine.errors import ModelFileError, UnsupportedModelError


class Metadata:
    """A file's metadata by key, or the part of it whose keys begin with `prefix`, such as "llama.".

    A value that is missing without a default, of another type, or outside `low … high` raises ModelFileError. Errors
    give the whole key.
    """

    def __init__(self, values: Mapping[str, object], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    def under(self, name: str) -> Metadata:
        """The keys that begin with `name` and a dot, without them."""
        return Metadata(self._values, f"{self._prefix}{name}.")

    def replaced(self, key: str, value: object) -> Metadata:
        """The same with another value under this key."""
        return Metadata({**self._values, self.whole(key): value}, self._prefix)

    def whole(self, key: str) -> str:
        """The key as it stands in the file."""
        return self._prefix + key

    def __contains__(self, key: str) -> bool:
        return self.whole(key) in self._values

    def integer(self, key: str, *, high: int, low: int = 1, default: int | None = None) -> int:
        """A whole number. A list, one number for each layer, raises UnsupportedModelError."""
        value = self._get(key, default)
        if isinstance(value, list):
            raise UnsupportedModelError(
                f"The model's {self.whole(key)} differs from layer to layer; this engine reads one number for all "
                "layers."
            )
        if not isinstance(value, int) or isinstance(value, bool):
            raise _mistyped(self.whole(key), "a whole number", value)
        if not low <= value <= high:
            raise _outside(self.whole(key), value, low, high)
        return value

    def integers(self, key: str, count: int, *, high: int, low: int = 1, default: int | None = None) -> list[int]:
        """So many whole numbers, such as one for each layer, given as a list of them or as one for all."""
        value = self._get(key, default)
        if not isinstance(value, list):
            return [self.integer(key, high=high, low=low, default=default)] * count
        if len(value) != count:
            raise _outside(f"length of {self.whole(key)}", len(value), count, count)
        for number in value:
            if not isinstance(number, int) or isinstance(number, bool):
                raise _mistyped(self.whole(key), "a list of whole numbers", value)
            if not low <= number <= high:
                raise _outside(self.whole(key), number, low, high)
        return value

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        """A finite number, as long as the bounds are finite: NaN lies within none."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _mistyped(self.whole(key), "a number", value)
        if not low <= value <= high:
            raise _outside(self.whole(key), value, low, high)
        return float(value)

    def text(self, key: str, *, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise _mistyped(self.whole(key), "text", value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise _mistyped(self.whole(key), "true or false", value)
        return value

    def flags(self, key: str, count: int) -> list[bool]:
        """The first `count` of a list of true or false, one for each layer."""
        value = self._get(key, None)
        if not isinstance(value, list) or len(value) < count or not all(isinstance(flag, bool) for flag in value):
            raise _mistyped(self.whole(key), f"a list of true or false for each of {count} layers", value)
        return value[:count]

    def length(self, key: str, *, high: int) -> int | None:
        """The number of entries of a list, at least one; `None` where the key is absent."""
        value = self._values.get(self.whole(key))
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise _mistyped(self.whole(key), "a list", value)
        if not 1 <= len(value) <= high:
            raise _outside(f"length of {self.whole(key)}", len(value), 1, high)
        return len(value)

    def numbers(self, key: str, *, count: int, low: float, high: float) -> tuple[float, ...]:
        """A list of so many numbers."""
        value = self._get(key, None)
        if not isinstance(value, list) or len(value) != count:
            raise _mistyped(self.whole(key), f"a list of {count} numbers", value)
        whole = self.whole(key)
        return tuple(Metadata({whole: one}).number(whole, low=low, high=high) for one in value)

    def _get(self, key: str, default: object) -> object:
        value = self._values.get(self.whole(key), default)
        if value is None:
            raise ModelFileError(
                f"The model file's metadata lacks {self.whole(key)}; the file is incomplete, fetch it again."
            )
        return value


def _mistyped(key: str, kind: str, value: object) -> ModelFileError:
    return ModelFileError(
        f"The model file's {key} must be {kind}, not {reprlib.repr(value)}; the file is damaged, fetch it again."
    )


def _outside(key: str, value: float, low: float, high: float) -> ModelFileError:
    return ModelFileError(
        f"The model file's {key} is {reprlib.repr(value)}, outside {low} to {high}; the file is damaged, fetch it "
        "again."
    )
