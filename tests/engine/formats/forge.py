"""GGUF files made by hand, byte by byte, so that tests can make wrong ones too."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)

_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def value(kind: int, content: Any, order: str = "<") -> bytes:
    """One metadata value. An array's content is (kind of its entries, entries)."""
    if kind == STRING:
        return text(content, order)
    if kind == ARRAY:
        entry_kind, entries = content
        head = struct.pack(order + "IQ", entry_kind, len(entries))
        return head + b"".join(value(entry_kind, entry, order) for entry in entries)
    return struct.pack(order + _CODES[kind], content)


def key(name: str | bytes, kind: int, content: Any, order: str = "<") -> bytes:
    return text(name, order) + struct.pack(order + "I", kind) + value(kind, content, order)


def tensor(name: str, dims: Sequence[int], ggml_type: int, offset: int, order: str = "<") -> bytes:
    """One tensor's entry. `dims` are in the file's order, innermost first."""
    shape = struct.pack(f"{order}I{len(dims)}Q", len(dims), *dims)
    return text(name, order) + shape + struct.pack(order + "IQ", ggml_type, offset)


def gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    order: str = "<",
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file. `n_keys` and `n_tensors` may lie."""
    counts = (len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    header = b"GGUF" + struct.pack(order + "IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


def small(version: int = 3, order: str = "<") -> bytes:
    """A sound file with every kind of metadata value and three tensors, ending with the last tensor's last byte."""
    keys = [
        key("general.architecture", STRING, "llama", order),
        key("u8", U8, 200, order),
        key("i8", I8, -3, order),
        key("u16", U16, 60000, order),
        key("i16", I16, -300, order),
        key("u32", U32, 4_000_000_000, order),
        key("i32", I32, -70000, order),
        key("f32", F32, 0.5, order),
        key("true", BOOL, 1, order),
        key("false", BOOL, 0, order),
        key("u64", U64, 2**63 + 1, order),
        key("i64", I64, -(2**40), order),
        key("f64", F64, 0.1, order),
        key("tokens", ARRAY, (STRING, ["a", "", "山 é"]), order),
        key("types", ARRAY, (I32, [1, -1, 7]), order),
        key("flags", ARRAY, (BOOL, [1, 0]), order),
        key("empty", ARRAY, (F32, []), order),
    ]
    tensors = [
        tensor("norm", [4], 0, 0, order),
        tensor("matrix", [64, 3], 3, 32, order),
        tensor("cube", [2, 3, 5], 1, 160, order),
    ]
    return gguf(keys, tensors, bytes(range(220)), version=version, order=order)


SMALL_METADATA = {
    "general.architecture": "llama",
    "u8": 200,
    "i8": -3,
    "u16": 60000,
    "i16": -300,
    "u32": 4_000_000_000,
    "i32": -70000,
    "f32": 0.5,
    "true": True,
    "false": False,
    "u64": 2**63 + 1,
    "i64": -(2**40),
    "f64": 0.1,
    "tokens": ["a", "", "山 é"],
    "types": [1, -1, 7],
    "flags": [True, False],
    "empty": [],
}
"""The metadata of `small`."""
