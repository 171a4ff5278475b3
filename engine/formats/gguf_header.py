"""The header of one GGUF file: its metadata, and what it says of its tensors.

Specification: github.com/ggml-org/ggml, docs/gguf.md. Versions 2 and 3 have the same bytes; 3 allows either byte order.
The bounds are ours: they stand well above every published model, and keep what a hostile file can cost to about half
a gigabyte and a few seconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.cursor import Cursor, opened, size_of

MAGIC: Final = b"GGUF"

MAX_HEADER: Final = 1 << 26
"""Bytes. A tokenizer of 262,144 tokens with half a million merges comes to some 16 MiB."""

MAX_VALUES: Final = 1 << 23
"""Entries of all arrays together. That tokenizer has 1.3 million: texts, scores, kinds, merges."""

MAX_TENSORS: Final = 1 << 18
MAX_KEYS: Final = 1 << 16
MAX_NAME: Final = (1 << 16) - 1
MAX_DIMENSIONS: Final = 4

_NUMBERS: Final = {
    0: "u1",
    1: "i1",
    2: "u2",
    3: "i2",
    4: "u4",
    5: "i4",
    6: "f4",
    7: "?",
    10: "u8",
    11: "i8",
    12: "f8",
}
"""numpy's name for each numeric value type."""

LONG: Final = 1 << 13
"""Entries from which on an array of numbers is kept as such: only vocabularies have as many."""

_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True)
class Entry:
    """What a header says of one tensor. `shape` is row-major; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


@dataclass(frozen=True)
class Header:
    """One file's header, which is `nbytes` of the file's `size` bytes long; its last long array ends at byte
    `long_until`, 0 where there is none."""

    path: Path
    size: int
    version: int
    big_endian: bool
    metadata: dict[str, object]
    entries: tuple[Entry, ...]
    alignment: int
    nbytes: int
    long_until: int = 0

    @property
    def data_start(self) -> int:
        """The byte from which tensor offsets count."""
        return self.aligned(self.nbytes)

    def aligned(self, position: int) -> int:
        """The next multiple of the alignment."""
        return -(-position // self.alignment) * self.alignment


def read_header(path: Path, size: int | None = None) -> Header:
    """Parse the header of one file, in memory bounded by the header's own length. `size` is told of a file of which
    perhaps only the beginning is here.

    Raises ModelFileError for a file that is damaged, cut short or unreadable, its kind `MoreNeeded` for a beginning
    without the whole header, UnsupportedModelError for a version other than 2 and 3 and for arrays of arrays.
    """
    with opened(path) as file:
        partly = size is not None
        return _parse(Cursor(file, name=path.name, size=size_of(file, size), limit=MAX_HEADER, partly=partly), path)


def magic_at(path: Path, positions: Iterable[int]) -> bool:
    """Whether a GGUF file begins at one of these bytes of the file."""
    with opened(path) as file:
        for position in positions:
            file.seek(position)
            if file.read(len(MAGIC)) == MAGIC:
                return True
    return False


def quoted(text: str) -> str:
    """A name out of a file, made safe and short enough for a message."""
    return repr(text if len(text) <= 64 else f"{text[:61]}...")


def _parse(cursor: Cursor, path: Path) -> Header:
    if cursor.take(len(MAGIC)) != MAGIC:
        raise ModelFileError(f"{path.name} is not a GGUF file: it does not begin with the letters GGUF.")
    version = cursor.number("I")
    if version & 0xFFFF == 0:
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
        cursor.order = ">"
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{path.name} is GGUF version {version}; versions 2 and 3 can be read. Convert the model anew."
        )
    n_tensors, n_keys = cursor.number("Q"), cursor.number("Q")
    _check_count(cursor, "tensors", n_tensors, MAX_TENSORS, least_bytes=24)
    _check_count(cursor, "metadata keys", n_keys, MAX_KEYS, least_bytes=13)
    keys = _Metadata(cursor)
    metadata = keys.read(n_keys)
    entries = _entries(cursor, n_tensors)
    return Header(
        path=path,
        size=cursor.size,
        version=version,
        big_endian=cursor.order == ">",
        metadata=metadata,
        entries=entries,
        alignment=_alignment(cursor, metadata),
        nbytes=cursor.position,
        long_until=keys.long_until,
    )


def _check_count(cursor: Cursor, what: str, count: int, most: int, *, least_bytes: int) -> None:
    cursor.what = f"the list of {count} {what}"
    cursor.require(count * least_bytes)
    if count > most:
        raise cursor.error(f"is longer than the {most} allowed")


class _Metadata:
    """The key-value part. `_left` counts down the array entries that are still allowed, over all keys."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._left = MAX_VALUES
        self.long_until = 0

    def read(self, count: int) -> dict[str, object]:
        cursor = self._cursor
        metadata: dict[str, object] = {}
        for number in range(count):
            cursor.what = f"metadata key {number}"
            key = cursor.text(MAX_NAME)
            cursor.what = f"the metadata value {quoted(key)}"
            if key in metadata:
                raise cursor.error("appears twice")
            metadata[key] = self._value(cursor.number("I"))
        return metadata

    def _value(self, kind: int) -> object:
        if kind == _STRING:
            return self._cursor.text(MAX_HEADER)
        if kind == _ARRAY:
            values = self._array()
            if len(values) >= LONG:
                self.long_until = self._cursor.position
            return values
        value: object = self._numbers(kind, 1)[0].item()
        return value

    def _array(self) -> Sequence[object]:
        cursor = self._cursor
        kind, count = cursor.number("I"), cursor.number("Q")
        if kind == _ARRAY:
            raise UnsupportedModelError(f"{cursor.name}: {cursor.what} is an array of arrays, which is not supported.")
        if count > self._left:
            raise cursor.error(f"has {count} entries, where all arrays together may have {MAX_VALUES}")
        self._left -= count
        if kind == _STRING:
            return cursor.texts(count)
        numbers = self._numbers(kind, count)
        if count < LONG or numbers.dtype == np.bool_:
            values: list[object] = numbers.tolist()
            return values
        return array(numbers.dtype.char, numbers.tobytes())

    def _numbers(self, kind: int, count: int) -> npt.NDArray[Any]:
        code = _NUMBERS.get(kind)
        if code is None:
            raise self._cursor.error(f"has the unknown type {kind}")
        dtype = np.dtype(self._cursor.order + code)
        numbers = np.frombuffer(self._cursor.take(count * dtype.itemsize), dtype)
        return numbers.astype(dtype.newbyteorder("="), copy=False)


def _entries(cursor: Cursor, count: int) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for number in range(count):
        cursor.what = f"the entry of tensor {number}"
        name = cursor.text(MAX_NAME)
        cursor.what = f"the entry of tensor {quoted(name)}"
        if name in entries:
            raise cursor.error("appears twice")
        n_dimensions = cursor.number("I")
        if n_dimensions > MAX_DIMENSIONS:
            raise cursor.error(f"claims {n_dimensions} dimensions, where at most {MAX_DIMENSIONS} are possible")
        shape = tuple(cursor.number("Q") for _ in range(n_dimensions))[::-1]
        if 0 in shape:
            raise cursor.error("has a dimension of 0")
        entries[name] = Entry(name, shape, ggml_type=cursor.number("I"), offset=cursor.number("Q"))
    return tuple(entries.values())


def _alignment(cursor: Cursor, metadata: dict[str, object]) -> int:
    value = metadata.get("general.alignment", 32)
    cursor.what = "the metadata value 'general.alignment'"
    if not isinstance(value, int) or isinstance(value, bool):
        raise cursor.error("is not a whole number")
    if value <= 0 or value & (value - 1):
        raise cursor.error(f"is {value}, which is no power of two")
    return value
