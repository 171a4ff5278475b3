"""The vocabulary that a GGUF file carries in its metadata, checked once and read by every kind of tokenizer.

Keys and token types: GGUF specification, section "Tokenizer" (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

from __future__ import annotations

import math
import reprlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

import numpy as np

from engine.errors import ModelFileError
from engine.texts import Texts

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

WRITTEN_OUT = SPECIAL | {TokenType.USER_DEFINED}
"""Types whose tokens are the text that they are found as."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids. `types`, and `scores` where there are any, are as long as `tokens`; a type is 0
    where it is none that a byte can hold.

    `ids` finds a token's id by its text; an empty text, of which padding may give several, is not in it. `merges` are
    as the file has them, each two tokens with a blank between them.
    """

    tokens: Texts
    types: bytes
    scores: Sequence[float] | None
    merges: Sequence[str] | None
    ids: Mapping[str, int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Vocabulary:
        """Raises ModelFileError where an entry is missing, or has another type or length than it must."""
        tokens = Texts.of(cast("Sequence[str]", _list(metadata, "tokens", str)))
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
            _as_bytes(types) or bytes([TokenType.NORMAL]) * len(tokens),
            scores or None,
            merges or None,
            ids,
        )

    def of_type(self, kind: TokenType) -> dict[str, int]:
        """The ids of all tokens of this type by their texts."""
        numbers = np.flatnonzero(np.frombuffer(self.types, np.uint8) == kind).tolist()
        return {text: token_id for token_id in numbers if (text := self.tokens[token_id])}

    def merge_table(self, usable: Mapping[str, int]) -> list[tuple[str, str]]:
        """The file's merges, in order, as far as both halves and the whole are `usable`.

        A merge that leads to a token outside `usable` is left out, so that text cannot become a special token.
        Raises ModelFileError where one is not two tokens, or where a half or the whole is no token at all.
        """
        own = dict(zip(usable, usable, strict=True))  # so that each text is one object
        kept: dict[tuple[str, str], None] = {}  # of a merge that is listed twice, the first counts
        for number, merge in enumerate(self.merges or ()):
            at = merge.find(" ", 1)
            first, second = own.get(merge[:at]), own.get(merge[at + 1 :])
            if at > 0 and first and second and first + second in own:
                kept[first, second] = None
                continue
            left, right = _pair(merge, number)
            for part in (left, right, left + right):
                if part not in self.ids and part not in usable:
                    raise ModelFileError(
                        f"The model file's vocabulary is damaged: entry {number} of {PREFIX}merges, "
                        f"{reprlib.repr(f'{left} {right}')}, names {reprlib.repr(part)}, which is not a token."
                    )
        return list(kept)


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
    # In the compact sequences one stands for all.
    for index, item in enumerate(value[:1] if isinstance(value, Texts | array) else value):
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


def _as_bytes(types: Sequence[int]) -> bytes:
    byte_of = {kind: kind if 0 <= kind < 256 else 0 for kind in set(types)}
    return bytes(map(byte_of.__getitem__, types))


def _pair(merge: str, number: int) -> tuple[str, str]:
    # A token may itself begin with a space, so the blank between the halves is looked for after the first character.
    at = merge.find(" ", 1)
    if at < 0 or at == len(merge) - 1:
        raise ModelFileError(
            f"The model file's vocabulary is damaged: entry {number} of {PREFIX}merges is {reprlib.repr(merge)}, "
            "which must be two tokens with a blank between them."
        )
    return merge[:at], merge[at + 1 :]
