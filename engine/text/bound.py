"""How many tokens a text has at least, told without encoding it, which takes a second for every megabyte."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer


class LengthBound:
    """For one tokenizer. Never tells more than encoding gives: no token stands for more bytes than the longest one.

    Characters are counted where each of their bytes is a token. Others may be left out, or any number of them may end
    together in one unknown token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._longest = 1
        self._single: set[int] = set()
        for token_id in range(tokenizer.size):
            data = tokenizer.token_bytes(token_id)
            self._longest = max(self._longest, len(data))
            if len(data) == 1 and not tokenizer.is_special(token_id):
                self._single.add(data[0])

    def least_tokens(self, text: str) -> int:
        # A tokenizer may bring a text into normal form C, which can be shorter.
        return min(map(self._count, {text, unicodedata.normalize("NFC", text)}))

    def _count(self, text: str) -> int:
        uncounted = {
            ord(char): None for char in set(text) if not self._single.issuperset(char.encode(errors="replace"))
        }
        if uncounted:
            text = text.translate(uncounted)
        return -(-len(text.encode(errors="ignore")) // self._longest)
