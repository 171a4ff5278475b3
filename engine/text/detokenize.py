"""Text from token ids as they come, whole characters only."""

from __future__ import annotations

import codecs
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one stream of ids into text: what the pushes and the last flush return, joined, is `decode` of all ids.

    Bytes wait until their character is complete; U+FFFD appears as soon as they cannot become one any more.
    `continues` says that the stream goes on from a text before it, so that a blank it begins with belongs to it.
    `keep` are the texts of special tokens that are not skipped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        continues: bool = False,
        keep: Collection[str] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._keep = frozenset(keep)
        self._drop_blank = tokenizer.space_prefix and not continues
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The characters that this id completes, often none. Raises SettingsError on an id outside the vocabulary."""
        skipped = self._skip_special and self._tokenizer.is_special(token_id)
        if skipped and self._tokenizer.token_text(token_id) not in self._keep:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if data and self._drop_blank:
            data = data.removeprefix(b" ")
            self._drop_blank = False
        return self._decoder.decode(data)

    def flush(self, *, cut: bool = False) -> str:
        """What is left at the end: U+FFFD for a character that was never finished, else nothing.

        `cut` says that the stream was cut off where it would have gone on: the beginning of a character is dropped.
        """
        if cut:
            self._decoder.reset()
        return self._decoder.decode(b"", final=True)
