"""The vocabulary that a GGUF file carries in its metadata, checked once and read by every kind of tokenizer.

Keys and token types: GGUF specification, section "Tokenizer" (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

from engine.errors import ModelFileError

PREFIX = "tokenizer.ggml."


class TokenType(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})
"""Types that ordinary text never becomes, and that a reply does not show."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids. `types`, and `scores` where there are any, are as long as `tokens`.

    `ids` finds a token's id by its text; an empty text, of which padding may give several, is not in it.
    """

    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float] | None
    merges: Sequence[tuple[str, str]] | None
    ids: Mapping[str, int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Vocabulary:
        """Raises ModelFileError where an entry is missing, or has another type or length than it must."""
        tokens = cast("Sequence[str]", _list(metadata, "tokens", str))
        if not tokens:
            raise ModelFileError(f"The model file has no vocabulary: {PREFIX}tokens is missing or empty.")
        ids: dict[str, int] = {}
        for token_id, token in enumerate(tokens):
            if token and ids.setdefault(token, token_id) != token_id:
                raise ModelFileError(
                    f"The model file's vocabulary is damaged: {PREFIX}tokens gives {reprlib.repr(token)} "
                    f"the ids {ids[token]} and {token_id}."
                )
        types = cast("Sequence[int]", _list(metadata, "token_type", int, len(tokens)))
        scores = cast("Sequence[float]", _list(metadata, "scores", (int, float), len(tokens)))
        if not all(map(math.isfinite, scores)):
            raise ModelFileError(f"The model file's vocabulary is damaged: {PREFIX}scores holds NaN or infinity.")
        merges = cast("Sequence[str]", _list(metadata, "merges", str))
        return cls(
            tokens,
            types or [TokenType.NORMAL] * len(tokens),
            scores or None,
            [_pair(merge, number) for number, merge in enumerate(merges)] or None,
            ids,
        )

    def merge_table(self, usable: Mapping[str, int]) -> list[tuple[str, str]]:
        """The file's merges, in order, as far as both halves and the whole are `usable`.

        A merge that leads to a token outside `usable` is left out, so that text cannot become a special token.
        Raises ModelFileError where a half or the whole is no token at all.
        """
        kept = []
        for number, (left, right) in enumerate(self.merges or ()):
            if left in usable and right in usable and left + right in usable:
                kept.append((left, right))
                continue
            for part in (left, right, left + right):
                if part not in self.ids and part not in usable:
                    raise ModelFileError(
                        f"The model file's vocabulary is damaged: entry {number} of {PREFIX}merges, "
                        f"{reprlib.repr(f'{left} {right}')}, names {reprlib.repr(part)}, which is not a token."
                    )
        return list(dict.fromkeys(kept))  # of a merge that is listed twice, the first counts


def token_id(metadata: Mapping[str, object], key: str, size: int) -> int | None:
    """The id that `tokenizer.ggml.<key>` names, if it is there. Raises ModelFileError outside 0 … size-1."""
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ModelFileError(
            f"The model file's vocabulary is damaged: {PREFIX}{key} is {reprlib.repr(value)}, "
            f"which is not an id from 0 to {size - 1}."
        )
    return value


def flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    """The boolean `tokenizer.ggml.<key>`, or `default` where it is missing. Raises ModelFileError on another type."""
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, bool):
        raise ModelFileError(
            f"The model file says {PREFIX}{key} is {reprlib.repr(value)}, which must be true or false."
        )
    return value


def name(metadata: Mapping[str, object], key: str, default: str | None = None) -> str:
    """The text `tokenizer.ggml.<key>`. Raises ModelFileError on another type, or where it and `default` are missing."""
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, str):
        raise ModelFileError(
            f"The model file has no tokenizer: {PREFIX}{key} is missing."
            if value is None
            else f"The model file says {PREFIX}{key} is {reprlib.repr(value)}, which must be a text."
        )
    return value


def _list(
    metadata: Mapping[str, object], key: str, kind: type | tuple[type, ...], length: int | None = None
) -> Sequence[object]:
    """A list from the metadata, empty where it is missing."""
    value = metadata.get(PREFIX + key, ())
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ModelFileError(f"The model file says {PREFIX}{key} is {reprlib.repr(value)}, which must be a list.")
    for index, item in enumerate(value):
        if not isinstance(item, kind) or isinstance(item, bool):
            wanted = "text" if kind is str else "number"
            raise ModelFileError(
                f"The model file's {PREFIX}{key} holds {reprlib.repr(item)} at {index}, which is no {wanted}."
            )
    if length is not None and PREFIX + key in metadata and len(value) != length:
        raise ModelFileError(
            f"The model file's vocabulary is damaged: {PREFIX}tokens has {length} entries, "
            f"{PREFIX}{key} has {len(value)}."
        )
    return value


def _pair(merge: str, number: int) -> tuple[str, str]:
    # A token may itself begin with a space, so the blank between the halves is looked for after the first character.
    at = merge.find(" ", 1)
    if at < 0 or at == len(merge) - 1:
        raise ModelFileError(
            f"The model file's vocabulary is damaged: entry {number} of {PREFIX}merges is {reprlib.repr(merge)}, "
            "which must be two tokens with a blank between them."
        )
    return merge[:at], merge[at + 1 :]
