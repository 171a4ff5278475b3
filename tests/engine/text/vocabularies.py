"""Small vocabularies, written as a GGUF file's metadata would give them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gguf import TokenType
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.engine.text.texts import TEXTS

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = (
    int(kind)
    for kind in (TokenType.NORMAL, TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.BYTE)
)
K = "tokenizer.ggml."
SPECIAL = ("<|bos|>", "<|im_start|>", "<|im_end|>")
PROSE = (
    "The miller let the water run over the wheel, and the wheel turned the stone. The stones ground wheat and rye.",
    "Der Müller ließ das Wasser über das Rad laufen, und das Rad drehte den Stein.",
    "for i in range(10):\n    print(i, i ** 2)\n\n    if i % 2 == 0:\n        continue\n",
    "In 1234 and 12345 there were 12 mills; 1.5 or 2.5 wheels, 100,000 sacks. A mill's wheel isn't a miller's.",
    "Мельник пустил воду на колесо, и колесо повернуло камень. 水が水車を回し、石臼が小麦をひいた。",
)


def byte_level(pre: str, *, merges: Sequence[str] | None = None) -> dict[str, object]:
    """Bytes, merges (by default some learned without regard to words, so that every cut shows), special tokens."""
    if merges is None:
        merges = json.loads((Path(__file__).parent / "llama_cpp_ids.json").read_text())["merges"]
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens += dict.fromkeys(merge.replace(" ", "") for merge in merges)
    types = [NORMAL] * len(tokens) + [CONTROL] * 3 + [USER_DEFINED]
    tokens += [*SPECIAL, "<think>"]
    return {
        f"{K}model": "gpt2",
        f"{K}pre": pre,
        f"{K}tokens": tokens,
        f"{K}token_type": types,
        f"{K}merges": list(merges),
        f"{K}bos_token_id": tokens.index("<|bos|>"),
        f"{K}eos_token_id": tokens.index("<|im_end|>"),
        f"{K}add_bos_token": False,
    }


def sentencepiece(*, space_prefix: bool = True, drop: str = "") -> dict[str, object]:
    """Characters and merges learned from prose, scored by their order; all 256 bytes; unk, bos, eos. No merges listed.

    `drop` names characters that are in none of its tokens.
    """
    trained = Tokenizer(models.BPE())
    # Words begin at a blank, as SentencePiece cuts them while it learns.
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, min_frequency=1)
    corpus = [text.replace(" ", "▁") for text in (*PROSE, *TEXTS) if "<" not in text]
    trained.train_from_iterator(corpus, trainer)
    learned = json.loads(trained.to_str())["model"]
    merged = [left + right for left, right in learned["merges"]]
    characters = [token for token in learned["vocab"] if token not in set(merged)]
    normal = [token for token in (*dict.fromkeys(merged), *characters) if not set(token) & set(drop)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *normal, "<mill>"]
    return {
        f"{K}model": "llama",
        f"{K}tokens": tokens,
        f"{K}scores": [0.0] * 259 + [-float(rank) for rank in range(len(normal))] + [0.0],
        f"{K}token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(normal), USER_DEFINED],
        f"{K}bos_token_id": 1,
        f"{K}eos_token_id": 2,
        f"{K}add_space_prefix": space_prefix,
    }
