"""What is said of a text without encoding it never exceeds what encoding it gives."""

from __future__ import annotations

import random
import time
import unicodedata

import pytest

from engine.text import Tokenizer
from engine.text.bound import LengthBound
from tests.engine.text.texts import TEXTS
from tests.engine.text.vocabularies import byte_level, sentencepiece


@pytest.fixture(scope="module", params=["byte level", "with normal form C", "bytes missing", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "sentencepiece":
        return Tokenizer.from_metadata(sentencepiece())
    metadata = byte_level("qwen2" if request.param == "with normal form C" else "smollm", merges=["t h", "th e"])
    if request.param == "bytes missing":
        tokens = metadata["tokenizer.ggml.tokens"]
        # As GPT-2 writes a bare byte 0xA9, the second one of "é", and the letter "e".
        metadata |= {"tokenizer.ggml.tokens": [f"gone {n}" if t in ("©", "r") else t for n, t in enumerate(tokens)]}
    return Tokenizer.from_metadata(metadata)


def test_no_text_has_fewer_tokens_than_is_said(tokenizer: Tokenizer) -> None:
    bound = LengthBound(tokenizer)
    draws = random.Random(6)
    alphabet = "the r\n\u00e9e\u0301\u03b9\u0308\u0301\u1100\u1161\u11a8\U0001f9ed\ud83d\u6c34"
    texts = ["".join(draws.choices(alphabet, k=draws.randrange(60))) for _ in range(300)]
    for text in [*TEXTS, *texts, *(unicodedata.normalize("NFD", text) for text in TEXTS)]:
        ids = tokenizer.encode(text, parse_special=True, add_bos=False)
        assert bound.least_tokens(text) <= len(ids)


def test_what_is_said_grows_with_the_text(tokenizer: Tokenizer) -> None:
    bound = LengthBound(tokenizer)
    longest = max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.size))
    assert bound.least_tokens("") == 0
    assert bound.least_tokens("x" * 100 * longest) == 100


def test_megabytes_are_told_at_once(tokenizer: Tokenizer) -> None:
    bound = LengthBound(tokenizer)
    started = time.perf_counter()
    assert bound.least_tokens("x\u6c34" * 1_000_000) > 10_000
    assert time.perf_counter() - started < 2
