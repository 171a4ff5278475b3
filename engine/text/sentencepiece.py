"""SentencePiece-style BPE: characters of the text itself, blanks written as U+2581, unknown characters as bytes.

The rules are those of llama.cpp (src/llama-vocab.cpp, `llm_tokenizer_spm_session` and `llama_vocab::impl::tokenize`):
of all neighbours whose join is a token, the pair whose join scores highest is merged first, the leftmost on a tie.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from engine.errors import ModelFileError
from engine.text.vocabulary import PREFIX, SPECIAL, WRITTEN_OUT, TokenType, Vocabulary

BLANK = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LONGEST = 256
"""Of a longer token the joins are not looked for, which would cost the square of its length. None is known."""


Prefix = Literal["never", "each", "always", "first"]
"""Which stretches of text get a blank before them: none; each; those that begin with no blank themselves; the one of
these that begins a text. The last two are a `prepend_scheme` of `Metaspace` in a tokenizer.json; GGUF has none.
"""


class SentencePiece:
    """Encodes stretches of ordinary text.

    `space_prefix`: a text is encoded with a blank before it, which is taken off again when decoding.
    """

    def __init__(self, vocabulary: Vocabulary, *, prefix: Prefix, by_score: bool, split: bool = False) -> None:
        """`by_score` merges by the tokens' scores, else by the file's own list (Gemma 4 and checkpoints have one).
        `split` keeps merges from reaching over a blank.

        Raises ModelFileError where the one or the other is missing, or a merge names what is not a token.
        """
        from tokenizers import Tokenizer, models, pre_tokenizers

        self.space_prefix = prefix != "never"
        self._prefix = prefix
        # A user-defined token keeps its blanks in a GGUF file; merges name it with U+2581. Neither special tokens nor
        # bytes may come out of a merge, so that no text whatever can be encoded as one of them.
        kept_out = SPECIAL | {TokenType.BYTE}
        usable = {
            text.replace(" ", BLANK): token_id
            for text, token_id in vocabulary.ids.items()
            if vocabulary.types[token_id] not in kept_out
        }
        if (vocabulary.scores if by_score else vocabulary.merges) is None:
            raise ModelFileError(
                f"The model file's vocabulary is damaged: {PREFIX}{'scores' if by_score else 'merges'} is missing."
            )
        merges = merges_by_score(usable, vocabulary.scores or ()) if by_score else vocabulary.merge_table(usable)
        fallback = {text: token_id for text, token_id in vocabulary.ids.items() if _byte(text) is not None}
        unknown = next(iter(vocabulary.of_type(TokenType.UNKNOWN)), None)
        if unknown is not None:
            fallback[unknown] = vocabulary.ids[unknown]
        self._tokenizer = Tokenizer(
            models.BPE(usable | fallback, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
        )
        if split:
            self._tokenizer.pre_tokenizer = pre_tokenizers.Split(BLANK, "merged_with_next")

    def encode(self, text: str, *, first: bool) -> list[int]:
        text = text.replace(" ", BLANK)
        if self._prefix == "each" or (
            not text.startswith(BLANK) and (self._prefix == "always" or (self._prefix == "first" and first))
        ):
            text = BLANK + text
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_bytes(self, token: str, kind: int) -> bytes:
        if kind in WRITTEN_OUT:
            return token.encode()
        byte = _byte(token)
        return token.replace(BLANK, " ").encode() if byte is None else bytes([byte])


def _byte(token: str) -> int | None:
    """The byte that a token is written for, as <0x41>."""
    found = _BYTE.fullmatch(token) if token.startswith("<0x") else None
    return None if found is None else int(found[1], 16)


def merges_by_score(usable: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, best first, which makes merging by rank merging by score.

    Transformers converts such vocabularies in the same way (`generate_merges`). Equal to merging the highest score
    first as long as scores differ: a tie between two places goes to the lower id, within a token to the longer left
    part, and only then to the leftmost place.
    """
    own = dict(zip(usable, usable, strict=True))  # so that each text is one object
    joins: list[tuple[str, str]] = []
    wholes, cuts = array("q"), array("q")
    for text, token_id in usable.items():
        for cut in range(1, len(text) if len(text) <= _LONGEST else 0):
            left = own.get(text[:cut])
            if left and (right := own.get(text[cut:])):
                joins.append((left, right))
                wholes.append(token_id)
                cuts.append(cut)
    made, shorter_left = np.asarray(wholes), -np.asarray(cuts)
    order = np.lexsort((shorter_left, made, -np.asarray(scores, np.float64)[made]))
    return [joins[at] for at in order.tolist()]
