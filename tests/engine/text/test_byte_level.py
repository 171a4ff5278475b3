"""Byte-level BPE, judged by Transformers' own tokenizers, by llama.cpp's recorded ids and by pieces cut by hand."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest
from transformers import CohereTokenizerFast, GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf import gguf_tokenizer_mapping as transformers_gguf
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from engine.errors import UnsupportedModelError
from engine.text import Tokenizer
from engine.text.pretokenizers import PRE_TOKENIZERS
from tests.engine.text.texts import DECOMPOSED, TEXTS
from tests.engine.text.vocabularies import SPECIAL, K, byte_level

RECORDED = json.loads((Path(__file__).parent / "llama_cpp_ids.json").read_text())["ids"]


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, parse_special=False, add_bos=False)


@pytest.fixture(scope="module")
def made() -> dict[str, Tokenizer]:
    """One tokenizer for each way of cutting, found by any of its names."""
    by_rule = {rule: Tokenizer.from_metadata(byte_level(name)) for name, rule in PRE_TOKENIZERS.items()}
    return {name: by_rule[rule] for name, rule in PRE_TOKENIZERS.items()}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_ids_are_those_of_llama_cpp(made: dict[str, Tokenizer], name: str) -> None:
    ids = [encode(made[name], text) for text in TEXTS]
    assert hashlib.sha256(json.dumps(ids).encode()).hexdigest()[:16] == RECORDED[name]


@pytest.mark.parametrize("name", sorted(set(PRE_TOKENIZERS) & set(transformers_gguf.GGUF_PRE_TOKENIZER_SPLITS)))
def test_ids_are_those_that_transformers_reads_from_the_same_metadata(made: dict[str, Tokenizer], name: str) -> None:
    metadata = byte_level(name)
    renamed = {
        theirs: metadata[f"tokenizer.{ours}"]
        for ours, theirs in transformers_gguf.GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{ours}" in metadata
    }
    judge, _ = transformers_gguf.convert_gguf_tokenizer("llama", renamed)
    judge.model.ignore_merges = PRE_TOKENIZERS[name].whole_words
    for text in TEXTS:
        if any(special in text for special in SPECIAL):
            continue  # it always recognises them
        assert encode(made[name], text) == judge.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("gpt-2", GPT2Tokenizer),
        ("qwen2", Qwen2Tokenizer),
        ("qwen35", Qwen3_5Tokenizer),
        ("olmo", GPTNeoXTokenizer),
        ("command-r", CohereTokenizerFast),
    ],
)
def test_ids_are_those_of_the_class_of_transformers_that_the_model_uses(
    made: dict[str, Tokenizer], name: str, judge: type
) -> None:
    metadata = byte_level(name)
    vocab = {token: token_id for token_id, token in enumerate(metadata[f"{K}tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata[f"{K}merges"]]
    theirs = judge(vocab=vocab, merges=merges)
    for text in (*TEXTS, DECOMPOSED):
        assert encode(made[name], text) == theirs.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-4o", "HTTPServer iPhone don't 1234", "HTTPServer| i|Phone| don't| |123|4"),
        ("tekken", "HTTPServer iPhone don't 1234", "HTTPServer| i|Phone| don|'t| |1|2|3|4"),
        ("tekken", "हिन्दी में", "हिन्दी| में"),
        ("kimi-k2", "漢字abc iPhone 1234", "漢字|abc| i|Phone| |123|4"),
        ("tiny_aya", "1234567 is 12", "1|234|567| is| |12"),
        ("superbpe", "by the way 1234567", "by the way |1|234|567"),
        ("deepseek-llm", "x 123\n\nΩμ \u2126!", "x| |1|2|3|\n|\n|Ωμ| |\u2126|!"),
    ],
)
def test_words_are_cut_as_the_models_own_expression_cuts_them(name: str, text: str, pieces: str) -> None:
    cut = pieces.split("|")
    assert "".join(cut) == text
    # Merges that join any two neighbouring bytes and so make whatever is cut out one token.
    tokenizer = Tokenizer.from_metadata(byte_level(name, merges=_merges_of(text, cut)))
    assert [tokenizer.decode([token_id]) for token_id in encode(tokenizer, text)] == cut


def _merges_of(text: str, pieces: list[str]) -> list[str]:
    """Merges that build each piece, and then the whole text, from the left."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    spelling = bytes_to_unicode()
    merges = []
    for piece in (*pieces, text):
        spelled = [spelling[byte] for byte in piece.encode()]
        merges += ["".join(spelled[:end]) + " " + spelled[end] for end in range(1, len(spelled))]
    return list(dict.fromkeys(merges))


def test_a_file_without_a_name_is_cut_as_one_that_says_default() -> None:
    metadata = byte_level("default")
    named = Tokenizer.from_metadata(metadata)
    del metadata[f"{K}pre"]
    unnamed = Tokenizer.from_metadata(metadata)
    assert [encode(unnamed, text) for text in TEXTS] == [encode(named, text) for text in TEXTS]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'no-such-rule'.*llama-bpe.*qwen2.*smollm"):
        Tokenizer.from_metadata(byte_level("no-such-rule"))


def test_every_character_comes_back(made: dict[str, Tokenizer]) -> None:
    planes = [chr(code) for code in range(0, 0x110000, 97) if not 0xD800 <= code < 0xE000]
    text = "".join(planes)
    for name in ("smollm", "llama-bpe", "gpt-4o", "deepseek-v3", "falcon"):
        assert made[name].decode(encode(made[name], text)) == text


def test_special_tokens_are_recognised_only_when_asked_for_and_user_defined_ones_always(
    made: dict[str, Tokenizer],
) -> None:
    tokenizer = made["smollm"]
    text = f"{SPECIAL[1]}user\n<think>a<think>{SPECIAL[2]}"
    names = {tokenizer.token_text(token_id): token_id for token_id in range(tokenizer.size)}
    with_special = tokenizer.encode(text, parse_special=True, add_bos=False)
    without = encode(tokenizer, text)
    assert with_special[0] == names["<|im_start|>"] and with_special[-1] == names["<|im_end|>"]
    assert not {names[special] for special in SPECIAL} & set(without)
    assert with_special.count(names["<think>"]) == without.count(names["<think>"]) == 2
    assert tokenizer.decode(with_special, skip_special=False) == text == tokenizer.decode(without)
    assert tokenizer.decode(with_special) == "user\n<think>a<think>"
    assert tokenizer.n_control == 3


def test_ordinary_text_never_becomes_a_special_token_even_where_a_merge_or_a_whole_word_would_make_it_one() -> None:
    metadata = byte_level("llama-bpe", merges=["a b", "ab c"])
    tokens = metadata[f"{K}tokens"]
    metadata[f"{K}token_type"][tokens.index("abc")] = 3
    tokenizer = Tokenizer.from_metadata(metadata)
    assert [tokenizer.token_text(token_id) for token_id in encode(tokenizer, "abc")] == ["ab", "c"]


def test_half_a_surrogate_pair_becomes_a_replacement_character(made: dict[str, Tokenizer]) -> None:
    tokenizer = made["smollm"]
    assert tokenizer.decode(encode(tokenizer, "a\ud83d b \ud83d\ude00")) == "a\ufffd b \U0001f600"


def test_a_name_whose_models_want_bos_does_without_where_the_file_has_none() -> None:
    metadata = byte_level("llama-bpe", merges=["t h"])
    del metadata[f"{K}add_bos_token"]
    assert Tokenizer.from_metadata(metadata).add_bos
    del metadata[f"{K}bos_token_id"]
    tokenizer = Tokenizer.from_metadata(metadata)
    assert not tokenizer.add_bos
    assert tokenizer.encode("a", parse_special=True, add_bos=True) == encode(tokenizer, "a")


def test_of_a_merge_that_is_listed_twice_the_first_counts() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level("smollm", merges=["a b", "b c", "a b"]))
    assert [tokenizer.token_text(token_id) for token_id in encode(tokenizer, "abc")] == ["ab", "c"]


@pytest.mark.parametrize("name", ["superbpe", "tiny_aya"])
def test_a_number_without_end_is_cut_in_time(made: dict[str, Tokenizer], name: str) -> None:
    start = time.monotonic()
    assert made[name].decode(encode(made[name], "1" * 60_000)) == "1" * 60_000
    assert time.monotonic() - start < 10
