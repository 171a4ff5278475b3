"""Byte-level BPE: text → UTF-8 bytes, each written as one printable character → merges by rank.

The alphabet of 256 characters is GPT-2's (Radford et al. 2019; `bytes_to_unicode` in its published encoder).
"""

from __future__ import annotations

import reprlib
from contextlib import suppress
from itertools import chain
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from engine.text.vocabulary import PREFIX, SPECIAL, WRITTEN_OUT, Vocabulary


def _alphabet() -> dict[str, int]:
    """Printable Latin-1 stands for itself; the other bytes, in order, for U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF: Final = "".join(chr(_alphabet().get(chr(code), 0xFFFF)) for code in range(0x100 + 68))
"""For `str.translate`: each character of the alphabet becomes the one with the number of its byte, others become none
of those. The last 68 stand for the bytes that are not printable."""


def pre_tokenizer(name: str) -> PreTokenizer:
    """Raises UnsupportedModelError, which lists the known names, for any other."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"The model file names the pre-tokenizer {reprlib.repr(name)}, which is not known here. "
            f"Known are: {', '.join(sorted(PRE_TOKENIZERS))}."
        ) from None


class ByteLevel:
    """Encodes stretches of ordinary text. A byte for which the vocabulary has no token is left out."""

    space_prefix = False

    def __init__(self, vocabulary: Vocabulary, pre: PreTokenizer) -> None:
        """Raises ModelFileError where there are no merges, or one names what is not a token."""
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

        if vocabulary.merges is None:
            raise ModelFileError(f"The model file's vocabulary is damaged: {PREFIX}merges is missing.")
        # Without the special tokens, so that no text whatever can be encoded as one.
        usable = dict(vocabulary.ids)
        for text in chain.from_iterable(map(vocabulary.of_type, SPECIAL)):
            del usable[text]
        merges = vocabulary.merge_table(usable)
        self._tokenizer = Tokenizer(models.BPE(usable, merges, ignore_merges=pre.whole_words))
        if pre.nfc:
            self._tokenizer.normalizer = normalizers.NFC()
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    def encode(self, text: str, *, first: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token: str, kind: int) -> bytes:
        if kind not in WRITTEN_OUT:
            with suppress(UnicodeEncodeError):
                return token.translate(_BYTE_OF).encode("latin-1")
        return token.encode()
