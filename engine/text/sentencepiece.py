"""SentencePiece-style BPE: characters of the text itself, blanks written as U+2581, unknown characters as bytes.

The rules are those of llama.cpp (src/llama-vocab.cpp, `llm_tokenizer_spm_session` and `llama_vocab::impl::tokenize`):
of all neighbours whose join is a token, the pair whose join scores highest is merged first, the leftmost on a tie.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from engine.errors import ModelFileError
from engine.text.vocabulary import PREFIX, SPECIAL, TokenType, Vocabulary

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
        usable = {
            text.replace(" ", BLANK): token_id
            for text, token_id in vocabulary.ids.items()
            if vocabulary.types[token_id] not in SPECIAL and vocabulary.types[token_id] != TokenType.BYTE
        }
        if (vocabulary.scores if by_score else vocabulary.merges) is None:
            raise ModelFileError(
                f"The model file's vocabulary is damaged: {PREFIX}{'scores' if by_score else 'merges'} is missing."
            )
        merges = merges_by_score(usable, vocabulary.scores or ()) if by_score else vocabulary.merge_table(usable)
        fallback = {text: token_id for text, token_id in vocabulary.ids.items() if _BYTE.fullmatch(text)}
        unknown = next((text for text, n in vocabulary.ids.items() if vocabulary.types[n] == TokenType.UNKNOWN), None)
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
        if kind in SPECIAL or kind == TokenType.USER_DEFINED:
            return token.encode()
        if byte := _BYTE.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return token.replace(BLANK, " ").encode()


def merges_by_score(usable: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, best first, which makes merging by rank merging by score.

    Transformers converts such vocabularies in the same way (`generate_merges`). Equal to merging the highest score
    first as long as scores differ: a tie between two places goes to the lower id, within a token to the longer left
    part, and only then to the leftmost place.
    """
    joins = [
        (-scores[token_id], token_id, -cut, text[:cut], text[cut:])
        for text, token_id in usable.items()
        for cut in range(1, len(text) if len(text) <= _LONGEST else 0)
        if text[:cut] in usable and text[cut:] in usable
    ]
    joins.sort()
    return [(left, right) for *_, left, right in joins]
