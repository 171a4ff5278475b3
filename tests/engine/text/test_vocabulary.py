"""What a damaged or unknown tokenizer in a model file gets: one sentence that says what is wrong."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGUFWriter

from engine.errors import MillstreamError, ModelFileError, SettingsError, UnsupportedModelError
from engine.formats import open_index
from engine.text import Tokenizer
from tests.engine.text.vocabularies import CONTROL, NORMAL, K, byte_level, sentencepiece

SMALL = ("t h", "th e")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": None}, ModelFileError, r"tokenizer\.ggml\.model is missing"),
        ({"model": 7}, ModelFileError, r"tokenizer\.ggml\.model is 7"),
        ({"model": "bert"}, UnsupportedModelError, r"'bert'.*gpt2, llama, gemma4"),
        ({"pre": ["smollm"]}, ModelFileError, r"tokenizer\.ggml\.pre is \['smollm'\]"),
        ({"tokens": None}, ModelFileError, r"tokens is missing or empty"),
        ({"tokens": []}, ModelFileError, r"tokens is missing or empty"),
        ({"tokens": "abc"}, ModelFileError, r"tokens is 'abc', which must be a list"),
        ({"tokens": ["a", 5]}, ModelFileError, r"tokens holds 5 at 1, which is no text"),
        ({"tokens": ["a", "b", "a"]}, ModelFileError, r"'a' the ids 0 and 2"),
        ({"token_type": [NORMAL] * 3}, ModelFileError, r"tokens has 262 entries, tokenizer\.ggml\.token_type has 3"),
        ({"token_type": []}, ModelFileError, r"tokens has 262 entries, tokenizer\.ggml\.token_type has 0"),
        ({"token_type": ["normal"] * 262}, ModelFileError, r"token_type holds 'normal' at 0, which is no number"),
        ({"scores": [0.0] * 261}, ModelFileError, r"scores has 261"),
        ({"merges": None}, ModelFileError, r"merges is missing"),
        ({"merges": ["t h", "the"]}, ModelFileError, r"entry 1 of tokenizer\.ggml\.merges is 'the'"),
        ({"merges": ["t h", " h"]}, ModelFileError, r"entry 1 of tokenizer\.ggml\.merges is ' h'"),
        ({"merges": ["t h", "h "]}, ModelFileError, r"entry 1 of tokenizer\.ggml\.merges is 'h '"),
        ({"merges": ["t h", "th qq"]}, ModelFileError, r"entry 1 .* names 'qq', which is not a token"),
        ({"merges": ["t h", "h t"]}, ModelFileError, r"entry 1 .* names 'ht', which is not a token"),
        ({"bos_token_id": 262}, ModelFileError, r"bos_token_id is 262, which is not an id from 0 to 261"),
        ({"eos_token_id": -1}, ModelFileError, r"eos_token_id is -1"),
        ({"eot_token_id": 1 << 32}, ModelFileError, r"eot_token_id is 4294967296"),
        ({"eom_token_id": True}, ModelFileError, r"eom_token_id is True"),
        ({"eos_token_id": 2.0}, ModelFileError, r"eos_token_id is 2\.0"),
        ({"add_bos_token": 1}, ModelFileError, r"add_bos_token is 1, which must be true or false"),
        ({"add_bos_token": True, "bos_token_id": None}, ModelFileError, r"names none"),
    ],
)
def test_a_damaged_vocabulary_is_refused(change: dict[str, object], error: type[MillstreamError], words: str) -> None:
    metadata = byte_level("smollm", merges=SMALL) | {K + key: value for key, value in change.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(error, match=words):
        Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused(score: float) -> None:
    metadata = sentencepiece()
    metadata[f"{K}scores"][300] = score
    with pytest.raises(ModelFileError, match="scores holds NaN or infinity"):
        Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize(("model", "key"), [("llama", "scores"), ("gemma4", "merges")])
def test_a_sentencepiece_vocabulary_without_its_rule_is_refused(model: str, key: str) -> None:
    metadata = sentencepiece() | {f"{K}model": model}
    metadata.pop(K + key, None)
    with pytest.raises(ModelFileError, match=f"{key} is missing"):
        Tokenizer.from_metadata(metadata)


def test_a_special_token_of_absurd_length_is_refused() -> None:
    metadata = byte_level("smollm", merges=SMALL)
    metadata[f"{K}tokens"].append("<" * 5000)
    metadata[f"{K}token_type"].append(CONTROL)
    with pytest.raises(ModelFileError, match="special token 262 has 5000 characters"):
        Tokenizer.from_metadata(metadata)


def test_a_vocabulary_that_consists_of_very_long_tokens_is_read_in_time() -> None:
    metadata = sentencepiece()
    metadata[f"{K}tokens"] += ["x" * 200_000 + str(n) for n in range(20)]
    metadata[f"{K}token_type"] += [NORMAL] * 20
    metadata[f"{K}scores"] += [0.0] * 20
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.token_bytes(tokenizer.size - 1).endswith(b"x19")


@pytest.mark.parametrize(
    "change",
    [
        {"add_bos_token": list(range(10**6))},
        {"model": "x" * 10**6},
        {"pre": "x" * 10**6},
        {"merges": ["t " + "x" * 10**6]},
        {"tokens": ["x" * 10**6] * 2},
    ],
)
def test_an_error_does_not_quote_what_is_long(change: dict[str, object]) -> None:
    metadata = byte_level("smollm", merges=SMALL) | {K + key: value for key, value in change.items()}
    with pytest.raises(MillstreamError) as caught:
        Tokenizer.from_metadata(metadata)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("token_id", [-1, 262])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    tokenizer = Tokenizer.from_metadata(byte_level("smollm", merges=SMALL))
    for ask in (tokenizer.token_bytes, tokenizer.token_text, tokenizer.is_special, lambda n: tokenizer.decode([n])):
        with pytest.raises(SettingsError, match=f"no token {token_id}: .* from 0 to 261"):
            ask(token_id)


def end_tokens(*control: str, normal: tuple[str, ...] = (), **ids: int) -> set[str]:
    metadata = byte_level("smollm", merges=SMALL)
    metadata[f"{K}tokens"] += [*control, *normal]
    metadata[f"{K}token_type"] += [CONTROL] * len(control) + [NORMAL] * len(normal)
    tokenizer = Tokenizer.from_metadata(metadata | {f"{K}{key}_token_id": value for key, value in ids.items()})
    return {tokenizer.token_text(token_id) for token_id in tokenizer.eos_ids}


def test_end_tokens_are_those_the_file_names_and_the_control_tokens_that_are_known_to_end_a_turn() -> None:
    assert end_tokens(eos=0, eot=1, eom=2) == {"!", '"', "#", "<|im_end|>"}
    assert end_tokens("<|eot_id|>", "<|end_of_text|>", "<|python_tag|>", eos=260) == {
        "<|im_end|>",
        "<|eot_id|>",
        "<|end_of_text|>",
    }
    assert "</s>" not in end_tokens(normal=("</s>",))


def test_a_token_that_only_closes_a_part_of_the_turn_does_not_end_it() -> None:
    assert "<|end|>" in end_tokens("<|end|>")
    assert end_tokens("<|end|>", "<|return|>", "<|call|>") == {"<|im_end|>", "<|return|>", "<|call|>"}
    assert "<|end|>" not in end_tokens("<|end|>", "<|flush|>", "<|calls|>")


def test_padding_tokens_without_a_text_are_no_duplicates() -> None:
    metadata = byte_level("smollm", merges=SMALL)
    metadata[f"{K}tokens"] += ["", ""]
    metadata[f"{K}token_type"] += [NORMAL, CONTROL]
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.decode(tokenizer.encode("the", parse_special=True, add_bos=False)) == "the"
    assert tokenizer.token_bytes(263) == b""


def test_a_type_that_nobody_knows_is_an_ordinary_token_whatever_its_number() -> None:
    ids = []
    for kind in (NORMAL, 0, 7, 255, 259, -1, 1 << 40):
        metadata = byte_level("smollm", merges=SMALL)
        metadata[f"{K}token_type"][metadata[f"{K}tokens"].index("the")] = kind
        tokenizer = Tokenizer.from_metadata(metadata)
        ids.append(tokenizer.encode("the", parse_special=True, add_bos=False))
        assert tokenizer.decode(ids[-1]) == "the"
    assert ids == [ids[0]] * len(ids) and len(ids[0]) == 1


@pytest.mark.parametrize("token", ["a b", "\n", "\x80", "é水", "Ń\u0144", "\uffff", "a\xad"])
def test_a_token_that_is_not_of_the_alphabet_of_bytes_stands_for_its_own_text(token: str) -> None:
    metadata = byte_level("smollm", merges=SMALL)
    metadata[f"{K}tokens"].append(token)
    metadata[f"{K}token_type"].append(NORMAL)
    assert Tokenizer.from_metadata(metadata).token_bytes(262) == token.encode()


def test_a_vocabulary_takes_no_object_for_each_of_its_tokens(tmp_path: Path) -> None:
    count = 20_000
    halves = [f"{number:03d}" for number in range(200)]
    wholes = [left + right for left in halves for right in halves][: count - len(halves)]
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*halves, *wholes])
    writer.add_token_types([NORMAL] * count)
    writer.add_token_merges([f"{whole[:3]} {whole[3:]}" for whole in wholes])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    Tokenizer.from_metadata(byte_level("smollm", merges=SMALL))  # what is imported on the way
    tracemalloc.start()
    try:
        index = open_index(tmp_path / "m.gguf")
        tokenizer = Tokenizer.from_metadata(index.metadata)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tokenizer.token_text(count - 1) == wholes[-1]
    assert held < 40 * count
