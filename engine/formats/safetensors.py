"""One safetensors file: what its header says of its tensors, checked against the file.

Specification: github.com/huggingface/safetensors, README.md, "Format". A u64 length, little-endian; so many bytes of
JSON; then the data, which the tensors fill without gap or overlap.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.cursor import MoreNeeded, opened, size_of
from engine.formats.gguf_header import quoted
from engine.formats.json_text import MAX_BYTES, parse_object
from engine.formats.recognise import BEGINNING, check_file, like_safetensors, looks_like

MAX_TENSORS: Final = 1 << 18
MAX_DIMENSIONS: Final = 8
MAX_EXTENT: Final = 1 << 48

BITS: Final = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Bits of one element, by the name of its type."""


@dataclass(frozen=True)
class Entry:
    """One tensor: `shape` is row-major; its `nbytes` bytes start at byte `offset` of `path`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    path: Path
    offset: int
    nbytes: int


def read_header(path: Path, size: int | None = None) -> dict[str, Entry]:
    """The tensors of one file by name, every span known to lie inside it and to be what shape and type ask for. `size`
    is told of a file of which perhaps only the beginning is here.

    Raises ModelFileError for a file that is damaged, cut short or no safetensors, its kind `MoreNeeded` for a beginning
    without the whole header, UnsupportedModelError for a number type that is not known.
    """
    check_file(path)
    with opened(path) as file:
        partly, size = size is not None, size_of(file, size)
        beginning = file.read(BEGINNING)
        if not like_safetensors(beginning):
            raise ModelFileError(f"{path.name} is not a safetensors file: it {looks_like(beginning)}.")
        length = int.from_bytes(beginning[:8], "little")
        if length > size - 8:
            raise ModelFileError(
                f"{path.name} is cut short or damaged: its header of {length} bytes goes on past the end of the file, "
                f"which has {size} bytes. Download it again."
            )
        if length > MAX_BYTES:
            raise ModelFileError(
                f"{path.name} is damaged: its header has {length} bytes, more than the {MAX_BYTES} that any sound one "
                "has. Download it again."
            )
        file.seek(8)
        data = file.read(length)
        if partly and len(data) < length:
            raise MoreNeeded(path.name, 8 + length)
        header = parse_object(data, f"The header of {path.name}")
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise _damaged(path, f"it lists {len(header)} tensors, more than the {MAX_TENSORS} allowed")
    entries = {name: _entry(name, value, path, 8 + length) for name, value in header.items()}
    _check_cover(entries, path, 8 + length, size)
    return entries


def _entry(name: str, value: object, path: Path, data_start: int) -> Entry:
    where = f"tensor {quoted(name)}"
    if not isinstance(value, dict):
        raise _damaged(path, f"the entry of {where} is not a JSON object")
    dtype = value.get("dtype")
    if not isinstance(dtype, str):
        raise _damaged(path, f"{where} has no type of numbers")
    if dtype not in BITS:
        raise UnsupportedModelError(
            f"Tensor {quoted(name)} in {path.name} has numbers of the type {quoted(dtype)}, which is not one of those "
            f"known: {', '.join(sorted(BITS))}."
        )
    shape = _whole_numbers(value.get("shape"), MAX_DIMENSIONS)
    if shape is None or 0 in shape:
        raise _damaged(path, f"{where} has the shape {reprlib.repr(value.get('shape'))}, which is not one")
    span = _whole_numbers(value.get("data_offsets"), 2)
    if span is None or len(span) != 2 or span[0] > span[1]:
        raise _damaged(
            path, f"{where} has the data_offsets {reprlib.repr(value.get('data_offsets'))}, which are no span of bytes"
        )
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or bits // 8 != span[1] - span[0]:
        raise _damaged(
            path,
            f"{where} has {span[1] - span[0]} bytes, but its shape {list(shape)} of {dtype} asks for {-(-bits // 8)}",
        )
    return Entry(name, shape, dtype, path, data_start + span[0], span[1] - span[0])


def _whole_numbers(value: object, most: int) -> tuple[int, ...] | None:
    """A list of at most `most` whole numbers, none negative and none beyond `MAX_EXTENT`; `None` for anything else."""
    if not isinstance(value, list) or len(value) > most:
        return None
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in value):
        return None
    return tuple(value) if all(0 <= number <= MAX_EXTENT for number in value) else None


def _check_cover(entries: dict[str, Entry], path: Path, start: int, size: int) -> None:
    """Raise ModelFileError unless the tensors fill the data from its first byte to the file's last."""
    at, before = start, "the header"
    for entry in sorted(entries.values(), key=lambda entry: entry.offset):
        if entry.offset != at:
            how = "overlaps" if entry.offset < at else "leaves a gap after"
            raise _damaged(path, f"tensor {quoted(entry.name)} {how} {before}")
        at, before = entry.offset + entry.nbytes, f"tensor {quoted(entry.name)}"
        if at > size:
            raise ModelFileError(
                f"Tensor {quoted(entry.name)} in {path.name} should end at byte {at}, but the file has only {size}: "
                "it is cut short or damaged. Download it again."
            )
    if at != size:
        raise _damaged(path, f"{size - at} bytes follow its last tensor")


def _damaged(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(f"{path.name} is damaged: {problem}. Download it again.")
