"""What repositories of the kinds that people publish offer."""

from __future__ import annotations

import hashlib
import re

import pytest

from registry.items import CHECKPOINT, GGUF, Offer, offers
from registry.sources.source import RemoteFile, Repository

COMMIT = "0" * 40


def listing(*paths: str, **sizes: int) -> Repository:
    """A repository with these files, of 100 bytes each, or of the sizes given by stem."""
    files = tuple(
        RemoteFile("hub", "org/name", COMMIT, path, sizes.get(path.partition(".")[0], 100), digest(path))
        for path in paths
    )
    return Repository("hub", "org/name", COMMIT, files=files)


def digest(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


def paths(offer: Offer) -> list[str]:
    return [file.path for file in offer.files]


def named(*files: str) -> dict[str, Offer]:
    found = offers(listing(*files))
    assert len({offer.name for offer in found}) == len(found)
    return {offer.name: offer for offer in found}


def test_each_quantisation_is_an_offer_from_the_smallest_on() -> None:
    found = offers(listing("m-Q8_0.gguf", "m-Q2_K.gguf", "m-f16.gguf", "README.md", **{"m-Q8_0": 30, "m-Q2_K": 10}))
    assert [(offer.name, offer.kind, offer.nbytes) for offer in found] == [
        ("Q2_K", GGUF, 10),
        ("Q8_0", GGUF, 30),
        ("F16", GGUF, 100),
    ]
    assert not any(offer.problem for offer in found)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("Qwen3-4B-Instruct-2507-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model.IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("ggml-model-i2_s.gguf", "I2_S"),
        ("tinyllama-1.1b-chat-v1.0.q5_k_s.gguf", "Q5_K_S"),
        ("Llama-3.2-1B-BF16.gguf", "BF16"),
        ("bonsai-TQ2_0.gguf", "TQ2_0"),
        ("SmolLM2-135M.Q4_1.gguf", "Q4_1"),
        ("q4_0-trained-Q8_0.gguf", "Q8_0"),
        ("IQ4_NL/anything.gguf", "IQ4_NL"),
        ("just a name.gguf", "just a name"),
        ("qwen3.gguf", "qwen3"),
    ],
)
def test_an_offer_is_named_for_its_encoding(file: str, name: str) -> None:
    assert list(named(file)) == [name]


def test_two_models_of_one_encoding_are_told_apart_by_their_files() -> None:
    assert set(named("small-Q4_0.gguf", "large-Q4_0.gguf", "large-Q8_0.gguf")) == {"small-Q4_0", "large-Q4_0", "Q8_0"}
    assert set(named("a/m-Q4_0.gguf", "b/m-Q4_0.gguf")) == {"a/m-Q4_0", "b/m-Q4_0"}


def test_all_parts_of_a_split_are_one_offer_in_their_order() -> None:
    parts = [f"BF16/m-BF16-0000{number}-of-00003.gguf" for number in (3, 1, 2)]
    found = named(*parts, "m-Q4_0.gguf")
    assert set(found) == {"BF16", "Q4_0"}
    assert paths(found["BF16"]) == sorted(parts) and found["BF16"].nbytes == 300
    assert found["BF16"].problem == ""


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"], "only 2 of the 3 parts of m.* Part 2 is missing"),
        (["m-00001-of-99999.gguf"], "only 1 of the 99999 parts of m.* Part 2 is missing"),
        (["m-00000-of-00002.gguf", "m-00001-of-00002.gguf"], "fits no model of 2 files"),
        (["m-00001-of-00000.gguf"], "fits no model of 0 files"),
        (["m-00001-of-00001.gguf", "m-00001-of-00001.GGUF"], "fits no model of 1 files|same name"),
        (["m-Q4_0.gguf.part1of2", "m-Q4_0.gguf.part2of2"], "joined by hand"),
        (["m-Q4_0.gguf-split-a", "m-Q4_0.gguf-split-b"], "joined by hand"),
    ],
)
def test_what_is_not_whole_is_shown_with_the_reason(parts: list[str], words: str) -> None:
    (offer,) = offers(listing(*parts))
    assert sorted(paths(offer)) == sorted(parts) and re.search(words, offer.problem)


def test_splits_of_other_lengths_are_other_models() -> None:
    found = offers(listing("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00001.gguf"))
    assert sorted(len(offer.files) for offer in found) == [1, 2] and not any(offer.problem for offer in found)


def test_the_vision_tower_comes_with_each_quantisation() -> None:
    towers = ["mmproj-BF16.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf", "mmproj-Q8_0.gguf"]
    found = named("m-Q4_0.gguf", "m-Q8_0.gguf", *towers)
    assert set(found) == {"Q4_0", "Q8_0"}
    offer = found["Q4_0"]
    assert paths(offer) == ["m-Q4_0.gguf", "mmproj-F16.gguf"] and offer.nbytes == 200
    assert [file.path for file in offer.weights] == ["m-Q4_0.gguf"]
    order = ["mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-Q8_0.gguf", "mmproj-F32.gguf"]
    assert [file.path for file in offer.towers] == order


def test_another_tower_or_none_can_be_chosen() -> None:
    offer = named("m-Q4_0.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf")["Q4_0"]
    other = offer.with_tower(offer.towers[1])
    assert paths(other) == ["m-Q4_0.gguf", "mmproj-F32.gguf"] and set(other.towers) == set(offer.towers)
    alone = offer.with_tower(None)
    assert paths(alone) == ["m-Q4_0.gguf"] and alone.with_tower(offer.towers[0]) == offer


def test_a_tower_goes_with_the_model_of_its_name() -> None:
    found = named("g-4b-Q4_0.gguf", "g-12b-Q8_0.gguf", "mmproj-g-12b-F16.gguf", "mmproj-g-4b-f32.gguf")
    assert paths(found["Q4_0"]) == ["g-4b-Q4_0.gguf", "mmproj-g-4b-f32.gguf"]
    assert paths(found["Q8_0"]) == ["g-12b-Q8_0.gguf", "mmproj-g-12b-F16.gguf"]


def test_what_is_no_model_is_not_offered() -> None:
    assert named("imatrix_unsloth.gguf", "m.imatrix", "m-imatrix.dat", "ggml-vocab-x.gguf", "mmproj-F16.gguf") == {}
    assert set(named("m-Q4_0.gguf", "m-imatrix.gguf")) == {"Q4_0"}


def test_a_checkpoint_is_one_offer_of_data_files_alone() -> None:
    shards = ["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"]
    data = ["model.safetensors.index.json", "config.json", "tokenizer.json", "tokenizer_config.json"]
    others = ["pytorch_model.bin", "modeling_x.py", "training_args.bin", "a.pickle", "x.pt", "README.md", "run.sh"]
    folder = ["original/consolidated.safetensors", "onnx/model.onnx", "original/params.json"]
    offer = named(*shards, *data, *others, *folder)["safetensors"]
    assert offer.kind == CHECKPOINT and offer.problem == "" and offer.nbytes == 600
    assert paths(offer) == [*sorted(shards), *data]


def test_one_file_of_weights_is_taken_before_several() -> None:
    files = ["model.safetensors", "model-00001-of-00001.safetensors", "config.json", "tokenizer.json"]
    assert paths(named(*files)["safetensors"]) == ["model.safetensors", "config.json", "tokenizer.json"]


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        (["model.safetensors", "tokenizer.json"], "safetensors", "config.json is missing"),
        (["model.safetensors", "config.json"], "safetensors", "tokenizer.json is missing"),
        (
            ["model-00001-of-00001.safetensors", "config.json", "tokenizer.json"],
            "safetensors",
            "model.safetensors.index.json, is missing",
        ),
        (
            ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json"],
            "safetensors",
            "Part 2 is missing",
        ),
        (["pytorch_model.bin", "config.json", "tokenizer.json"], "PyTorch", "can run code"),
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_says_why(files: list[str], name: str, words: str) -> None:
    assert words in named(*files)[name].problem


def test_an_adapter_is_no_checkpoint() -> None:
    assert named("adapter_model.safetensors", "adapter_config.json", "tokenizer.json") == {}


@pytest.mark.parametrize("path", ["../m-Q4_0.gguf", "/m-Q4_0.gguf", "C:/m-Q4_0.gguf", "a\\..\\m-Q4_0.gguf", "con.gguf"])
def test_a_file_that_leads_outside_is_shown_with_the_reason_and_cannot_be_loaded(path: str) -> None:
    (offer,) = offers(listing(path))
    assert "not safe to write" in offer.problem


def test_an_unsafe_tower_is_left_out() -> None:
    (offer,) = offers(listing("m-Q4_0.gguf", "../mmproj-F16.gguf"))
    assert offer.towers == () and offer.problem == ""


def test_an_empty_file_cannot_be_loaded() -> None:
    (offer,) = offers(listing("m.gguf", m=0))
    assert "empty" in offer.problem
