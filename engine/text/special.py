"""Tokens that are found in a text as they stand, before anything is merged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.errors import ModelFileError

_LONGEST = 1024
"""Characters. Bounds what looking for a match can cost at one place of a text; real ones have a few dozen."""


@dataclass(slots=True)
class _Node:
    after: dict[str, _Node] = field(default_factory=dict)
    token_id: int | None = None


class SpecialTokens:
    """Cuts texts at special tokens: the leftmost first, the longest of those that begin at one place.

    A `mark` is a character that occurs in no text. Put after a special token's first character, it makes it ordinary:
    `guard` does this to a text that others wrote, so that a prompt around it can be cut at its own special tokens only.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        """`ids` by the tokens' texts. Raises ModelFileError on one of absurd length."""
        self._root = _Node()
        for text, token_id in ids.items():
            if len(text) > _LONGEST:
                raise ModelFileError(
                    f"The model file's vocabulary is damaged: special token {token_id} has {len(text)} characters."
                )
            node = self._root
            for char in text:
                node = node.after.setdefault(char, _Node())
            node.token_id = token_id
        firsts = "".join(re.escape(char) for char in self._root.after)
        self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def split(self, text: str, mark: str = "") -> Iterator[str | int]:
        """The ids of the special tokens in `text`, and the stretches between them, without the marks in them."""
        done = 0
        for start in (first.start() for first in self._first.finditer(text)):
            found = self._match(text, start, mark) if start >= done else None
            if found is None:
                continue
            if start > done:
                yield _without(mark, text[done:start])
            token_id, done = found
            yield token_id
        if done < len(text):
            yield _without(mark, text[done:])

    def guard(self, text: str, mark: str) -> str:
        """`text` with a mark in every special token, overlapping ones too. Without any, `text` itself."""
        cuts = [at + 1 for at in (first.start() for first in self._first.finditer(text)) if self._match(text, at, "")]
        return mark.join(text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))

    def _match(self, text: str, at: int, mark: str) -> tuple[int, int] | None:
        if mark and text.startswith(mark, at + 1):
            return None
        node, found = self._root, None
        for end in range(at, len(text)):
            following = node.after.get(text[end])
            if following is None:
                break
            node = following
            if node.token_id is not None:
                found = node.token_id, end + 1
        return found


def _without(mark: str, text: str) -> str:
    return text.replace(mark, "") if mark else text
