"""JSON out of a model's files, which anybody can have written: bounded in size, depth and numbers, without doubt.

The bounds are ours: they stand well above every published model, and keep what a hostile file can cost to about half
a gigabyte and a few seconds.
"""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError
from engine.formats.cursor import opened
from engine.formats.gguf_header import quoted
from engine.formats.recognise import check_file

MAX_BYTES: Final = 1 << 26
"""A tokenizer of 262,144 tokens with half a million merges comes to some 33 MB."""

MAX_VALUES: Final = 1 << 22
"""Commas and brackets in one text. That tokenizer has 1.8 million."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read_object(path: Path, *, limit: int = MAX_BYTES) -> dict[str, object]:
    """The JSON object that a file of at most `limit` bytes holds. Raises ModelFileError for anything else."""
    check_file(path)
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ModelFileError(f"{path.name} has {size} bytes, more than the {limit} that such a file may have.")
        data = file.read(limit)
    return parse_object(data, path.name)


def parse_object(data: bytes, what: str) -> dict[str, object]:
    """`data` as one JSON object. Raises ModelFileError, which names `what` it is, for anything else.

    NaN, infinity, half a surrogate pair and a key that appears twice in an object are refused.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ModelFileError(f"{what} holds more than {MAX_VALUES} values, more than any sound model has.")
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_float=_finite, parse_constant=_no_number)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ModelFileError(f"{what} is nested deeper than any sound model's. Download it again.") from None
    except ValueError as error:  # its children among them: wrong JSON, wrong UTF-8, too many digits
        raise ModelFileError(f"{what} is damaged: {_reason(error)}. Download it again.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is damaged: it is not a JSON object. Download it again.")
    return value


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, _ in pairs:
            if key not in found:
                raise ValueError(f"{quoted(key)} appears twice")
            del found[key]
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:32]} is too large a number")
    return value


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON (line {error.lineno}, column {error.colno})"
    return "it is not valid UTF-8" if isinstance(error, UnicodeError) else str(error)
