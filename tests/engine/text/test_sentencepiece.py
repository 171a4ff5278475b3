"""SentencePiece-style vocabularies, judged by the rule written out plainly and by Transformers' LlamaTokenizer."""

from __future__ import annotations

import random

import pytest
from transformers.integrations.gguf import gguf_tokenizer_mapping as transformers_gguf

from engine.text import Tokenizer
from tests.engine.text.texts import DECOMPOSED, TEXTS
from tests.engine.text.vocabularies import BYTE, NORMAL, PROSE, K, sentencepiece


def reference(metadata: dict[str, object], text: str) -> list[int]:
    """The best-scored pair of neighbours first, the leftmost on a tie, until none is left; then bytes."""
    tokens, scores, types = (metadata[f"{K}{key}"] for key in ("tokens", "scores", "token_type"))
    mergeable = {token: token_id for token_id, token in enumerate(tokens) if types[token_id] == NORMAL}
    byte_ids = {int(token[3:5], 16): token_id for token_id, token in enumerate(tokens) if types[token_id] == BYTE}
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [
            (-scores[mergeable[symbols[at] + symbols[at + 1]]], at)
            for at in range(len(symbols) - 1)
            if symbols[at] + symbols[at + 1] in mergeable
        ]
        if not pairs:
            break
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids: list[int] = []
    for symbol in symbols:
        ids += [mergeable[symbol]] if symbol in mergeable else [byte_ids[byte] for byte in symbol.encode()]
    return ids


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, parse_special=False, add_bos=False)


@pytest.mark.parametrize("space_prefix", [True, False])
def test_the_best_score_is_merged_first(space_prefix: bool) -> None:
    metadata = sentencepiece(space_prefix=space_prefix, drop="xé水ß")
    tokenizer = Tokenizer.from_metadata(metadata)
    for text in (*TEXTS, *PROSE, DECOMPOSED):
        expected = reference(metadata, " " * space_prefix + text) if text else []
        assert encode(tokenizer, text) == expected


def test_the_best_score_is_merged_first_in_random_texts_of_few_letters() -> None:
    metadata = sentencepiece(space_prefix=False)
    tokenizer = Tokenizer.from_metadata(metadata)
    draws = random.Random(3)
    letters = ["e", "h", "t", "r", "s", "l", "i", "n", "th", "he", "er", " ", "  ", "1", "0", "="]
    for _ in range(300):
        text = "".join(draws.choices(letters, k=draws.randrange(1, 40)))
        assert encode(tokenizer, text) == reference(metadata, text)


def test_ids_are_those_that_transformers_reads_from_the_same_metadata() -> None:
    metadata = sentencepiece()
    renamed = {
        theirs: metadata[f"tokenizer.{ours}"]
        for ours, theirs in transformers_gguf.GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{ours}" in metadata
    }
    judge, _ = transformers_gguf.convert_gguf_tokenizer("llama", renamed)
    tokenizer = Tokenizer.from_metadata(metadata)
    for text in (*TEXTS, *PROSE, "one <mill>"):
        if "<s>" in text or text.startswith(" "):
            continue  # it recognises special tokens always, and adds no blank before another or after a token
        ids = encode(tokenizer, text)
        theirs = judge.encode(text, add_special_tokens=False).ids
        assert ids == theirs
        assert tokenizer.decode(ids) == judge.decode(theirs) == text


def test_every_character_comes_back() -> None:
    text = "".join(chr(code) for code in range(0, 0x110000, 211) if not 0xD800 <= code < 0xE000)
    for space_prefix in (True, False):
        tokenizer = Tokenizer.from_metadata(sentencepiece(space_prefix=space_prefix))
        for whole in (text.replace("▁", ""), " a", "  a ", " "):
            assert tokenizer.decode(encode(tokenizer, whole)) == whole


def test_a_blank_goes_before_a_text_and_before_what_follows_a_token_that_is_found_as_it_stands() -> None:
    metadata = sentencepiece()
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = tokenizer.encode("the<s>the<mill>the", parse_special=True, add_bos=True)
    mill = metadata[f"{K}tokens"].index("<mill>")
    blank_the = reference(metadata, " the")
    assert ids == [1, *blank_the, 1, *blank_the, mill, *blank_the]
    assert tokenizer.encode("", parse_special=True, add_bos=True) == [1]


def test_the_text_of_a_special_token_or_of_a_byte_token_is_ordinary_text() -> None:
    metadata = sentencepiece(space_prefix=False)
    for half in ("<", ">", "<s", "<0", "<0x", "<0x4", "1>"):
        metadata[f"{K}tokens"].append(half)
        metadata[f"{K}scores"].append(1.0)
        metadata[f"{K}token_type"].append(NORMAL)
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = encode(tokenizer, "<s><0x41></s>")
    assert not {1, 2, metadata[f"{K}tokens"].index("<0x41>")} & set(ids)
    assert tokenizer.decode(ids) == "<s><0x41></s>"


def test_bos_is_wanted_unless_the_file_says_otherwise() -> None:
    metadata = sentencepiece()
    assert Tokenizer.from_metadata(metadata).add_bos
    metadata[f"{K}add_bos_token"] = False
    assert not Tokenizer.from_metadata(metadata).add_bos
    del metadata[f"{K}bos_token_id"], metadata[f"{K}add_bos_token"]
    assert Tokenizer.from_metadata(metadata).bos == 1


def test_a_gemma_4_vocabulary_is_merged_by_its_own_list() -> None:
    metadata = sentencepiece()
    by_score = Tokenizer.from_metadata(metadata | {f"{K}add_space_prefix": False})
    metadata |= {f"{K}model": "gemma4", f"{K}merges": ["t h", "th e", "▁ the", "\n \n"], f"{K}add_bos_token": False}
    del metadata[f"{K}scores"], metadata[f"{K}add_space_prefix"]
    missing = [token for token in ("th", "the", "▁the", "\n\n") if token not in metadata[f"{K}tokens"]]
    metadata[f"{K}tokens"] += missing
    metadata[f"{K}token_type"] += [NORMAL] * len(missing)
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = encode(tokenizer, "th the\n\n wheel")
    assert [tokenizer.token_text(token_id) for token_id in ids] == ["th", "▁the", "\n\n", "▁", *"wheel"]
    assert tokenizer.decode(ids) == "th the\n\n wheel"
    assert tokenizer.add_bos
    assert encode(by_score, "wheel") != encode(tokenizer, "wheel")
