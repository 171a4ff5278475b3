"""Checkpoints as files: what belongs together, what is missing, and what cannot be run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import describe
from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats import open_index
from tests.engine.formats.checkpoints import byte_level, change, write_checkpoint
from tests.tiny import tiny

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("published") / "Tiny Llama", tiny("llama"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sharded") / "Tiny Llama", tiny("llama"), shard="60KB")


@pytest.fixture
def single(published: Path, folder: Path) -> Path:
    """A checkpoint of one file, to be damaged."""
    return Path(shutil.copytree(published, folder / "Tiny Llama"))


@pytest.fixture
def shards(sharded: Path, folder: Path) -> Path:
    """A checkpoint of several files, to be damaged."""
    return Path(shutil.copytree(sharded, folder / "Tiny Llama"))


def refusal(path: Path, kind: type[MillstreamError] = ModelFileError) -> str:
    with pytest.raises(kind) as caught:
        open_index(path)
    return str(caught.value)


def test_a_folder_and_its_file_are_the_same_model(single: Path) -> None:
    assert open_index(single / "model.safetensors") == open_index(single)


def test_any_file_of_several_opens_all(shards: Path) -> None:
    whole = open_index(shards)
    assert len(whole.paths) > 2
    for path in (shards / INDEX, *whole.paths):
        assert open_index(path) == whole


def test_it_is_described_as_its_configuration_says(single: Path) -> None:
    model = describe(single)
    truth = tiny("llama")
    assert (model.name, model.architecture) == ("Tiny Llama", "llama")
    assert model.parameters == truth.num_parameters()
    assert (model.layers, model.hidden_size, model.vocabulary, model.context_length) == (2, 64, 96, 64)
    assert model.encodings == {"F32": 4 * truth.num_parameters()}
    assert model.file_bytes == (single / "model.safetensors").stat().st_size


def test_a_model_in_the_cache_of_the_hub_has_its_name(single: Path, folder: Path) -> None:
    """Its folders are named by commit, and its files are links."""
    snapshot = folder / "models--maker--Tiny-Chat" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for path in single.iterdir():
        if sys.platform == "win32":
            shutil.copy(path, snapshot / path.name)
        else:
            (snapshot / path.name).symlink_to(path)
    assert describe(snapshot).name == "Tiny-Chat"
    assert describe(snapshot / "model.safetensors").name == "Tiny-Chat"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "no model.safetensors"),
        ("tokenizer.json", r"no tokenizer\.json"),
    ],
)
def test_a_missing_file_is_named(name: str, told: str, single: Path) -> None:
    (single / name).unlink()
    with pytest.raises(ModelFileError, match=told):
        open_index(single)


def test_a_folder_without_a_model_is_told_as_such(folder: Path) -> None:
    assert "a folder without a model" in refusal(folder)
    (folder / "m.gguf").write_bytes(b"GGUF")
    assert "Choose the model file (.gguf) in it" in refusal(folder)


def test_weights_in_pytorch_form_are_refused_with_the_reason(single: Path) -> None:
    (single / "model.safetensors").rename(single / "pytorch_model.bin")
    assert "can run code" in refusal(single)


def test_a_missing_shard_is_named(shards: Path) -> None:
    gone = open_index(shards).paths[1]
    gone.unlink()
    for path in (shards, open_path(shards, 0)):
        message = refusal(path)
        assert "File 2 of the" in message
        assert gone.name in message


def open_path(shards: Path, number: int) -> Path:
    return sorted(shards.glob("*.safetensors"))[number]


def test_shards_without_their_list_are_told(shards: Path) -> None:
    (shards / INDEX).unlink()
    assert INDEX in refusal(shards)
    assert INDEX in refusal(open_path(shards, 0))


def test_a_tensor_in_two_shards_is_refused(shards: Path) -> None:
    first, second = open_path(shards, 0), open_path(shards, 1)
    save_file(load_file(first) | load_file(second), second)
    message = refusal(shards)
    assert f"both in {first.name} and in {second.name}" in message


def test_a_tensor_that_is_not_where_the_list_says_is_named(shards: Path) -> None:
    content = json.loads((shards / INDEX).read_text())
    content["weight_map"]["model.layers.9.x.weight"] = open_path(shards, 0).name
    (shards / INDEX).write_text(json.dumps(content))
    assert "'model.layers.9.x.weight' should be in" in refusal(shards)


@pytest.mark.parametrize(
    "file",
    ["../x.safetensors", "/x.safetensors", "a\\x.safetensors", "c:x.safetensors", "config.json", "", 7, None, []],
)
def test_a_list_that_leads_elsewhere_is_refused(file: object, shards: Path) -> None:
    (shards / INDEX).write_text(json.dumps({"weight_map": {"a": file}}))
    assert "is damaged: it lists" in refusal(shards)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "{", ""])
def test_a_list_that_is_none_is_refused(content: str, shards: Path) -> None:
    (shards / INDEX).write_text(content)
    assert INDEX in refusal(shards)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_pipe_in_the_folder_is_not_waited_on(name: str, single: Path) -> None:
    (single / name).unlink()
    os.mkfifo(single / name)
    if name == "tokenizer_config.json":
        assert "tokenizer.chat_template" not in open_index(single).metadata
    else:
        assert name in refusal(single)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' .* LlamaForCausalLM, Mistral"),
    "packing": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "'gptq' .*quantization_config"),
    "activation": ({"hidden_act": "gelu"}, "'gelu'"),
    "scaling": ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4}}, "'dynamic' .* default, linear"),
    "older scaling": ({"rope_parameters": ..., "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    "window": ({"sliding_window": 16}, "the last 16 positions"),
    "layers without positions": ({"no_rope_layers": [1, 1, 1, 0]}, "no_rope_layers"),
    "part of a head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "yarn with mscale": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "mscale": 0.7}},
        "mscale",
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_not_run_is_refused_by_name(case: str, single: Path) -> None:
    changes, told = UNSUPPORTED[case]
    change(single / "config.json", **changes)
    with pytest.raises(UnsupportedModelError, match=told):
        open_index(single)


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "no architectures": ({"architectures": ...}, "names no architecture"),
    "architectures no list": ({"architectures": "LlamaForCausalLM"}, "names no architecture"),
    "vocabulary": ({"vocab_size": 97}, "96 rows, but config.json says 97"),
    "heads": ({"num_attention_heads": 7}, "cannot be shared among 7 heads"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads"),
    "heads as text": ({"num_attention_heads": "4"}, "must be a whole number, not '4'"),
    "a huge number": ({"num_hidden_layers": 10**300}, "num_hidden_layers"),
    "a missing number": ({"hidden_size": ...}, "lacks hidden_size"),
    "theta": ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e300}}, "rope_theta"),
    "rope no object": ({"rope_parameters": [1]}, "rope_parameters"),
    "empty llama 3 scaling": ({"rope_parameters": {"rope_type": "llama3"}}, "lacks factor"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_configuration_that_cannot_be_true_is_told(case: str, single: Path) -> None:
    changes, told = CONTRADICTIONS[case]
    change(single / "config.json", **changes)
    with pytest.raises(ModelFileError, match=told):
        open_index(single)


def _changed(single: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(single / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors if tensor is None else tensors | {name: tensor}, single / "model.safetensors")


def test_a_head_of_its_own_that_is_missing_is_not_replaced_by_the_embedding(single: Path) -> None:
    _changed(single, "lm_head.weight", None)
    assert "no tensor lm_head.weight" in refusal(single)


def test_a_head_beside_a_tied_embedding_is_left_out(single: Path) -> None:
    change(single / "config.json", tie_word_embeddings=True)
    assert "output.weight" not in open_index(single).tensors


def test_a_number_type_that_is_no_encoding_is_named_with_the_tensor(single: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    _changed(single, name, torch.zeros(96, 64).to(torch.float8_e4m3fn))
    message = refusal(single, UnsupportedModelError)
    assert name in message
    assert "F8_E4M3;" in message


def test_a_tensor_that_the_architecture_does_not_know_is_named(single: Path) -> None:
    _changed(single, "model.layers.0.mlp.up_proj.weight_scale", torch.ones(1))
    assert "up_proj.weight_scale" in refusal(single, UnsupportedModelError)


def test_frequencies_that_older_checkpoints_store_are_worked_out_anew(single: Path) -> None:
    before = open_index(single)
    _changed(single, "model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(8))
    assert set(open_index(single).tensors) == set(before.tensors)


def test_older_rotary_keys_mean_the_same(single: Path) -> None:
    change(single / "config.json", rope_parameters={"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0})
    current = open_index(single).metadata
    change(single / "config.json", rope_parameters=..., rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0})
    assert open_index(single).metadata == current
    assert current["llama.rope.freq_base"] == 5e5


def test_qwen2_is_translated_with_its_biases(folder: Path) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    model = Qwen2ForCausalLM(Qwen2Config(num_attention_heads=4, num_key_value_heads=2, **shape))
    write_checkpoint(folder, model, tokenizer=byte_level("qwen2", size=33))
    index = open_index(folder)
    assert index.metadata["general.architecture"] == "qwen2"
    assert index.metadata["qwen2.attention.head_count_kv"] == 2
    assert index.tensors["blk.0.attn_k.bias"].shape == (32,)
    assert not any(info.split_heads for info in index.tensors.values())


def test_damage_anywhere_in_the_configuration_is_a_sentence(single: Path) -> None:
    from engine.info import model_info

    path = single / "config.json"
    sound = json.loads(path.read_text())
    refused = 0
    for key in sound:
        for value in (None, True, -1, 0, 10**40, 0.5, 1e300, "", "x", [], {}, [[[]]], {"a": {}}):
            path.write_text(json.dumps(sound | {key: value}))
            try:
                model_info(open_index(single))
            except MillstreamError as error:
                refused += 1
                assert len(str(error)) < 1000
    assert refused > 80
