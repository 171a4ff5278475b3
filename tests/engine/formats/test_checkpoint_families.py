"""Checkpoints of the families whose configurations have keys of their own: Gemma 2, 3 and 4, and Phi 3."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma2Config,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    PreTrainedModel,
)

from engine import Engine, models
from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats import open_index
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from tests.engine.formats.checkpoints import change, write_checkpoint
from tests.engine.formats.test_checkpoint_logits import ENDS, logits
from tests.engine.models.judge import TOKENS, tolerance, transformers_logits
from tests.engine.models.test_gemma4 import SHAPES as GEMMA4
from tests.engine.text import families
from tests.tiny import tiny, write_gguf

LINEAR = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": [1.0 + index / 4 for index in range(8)],
    "short_factor": [1.0] * 8,
    "original_max_position_embeddings": 32,
}
NARROW = {"hidden_size": 32, "intermediate_size": 32}
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "gemma 2": ("gemma2", {}),
    "gemma 2, the largest": ("gemma2", {"num_hidden_layers": 46, "query_pre_attn_scalar": 8} | NARROW),
    "gemma 3": ("gemma3", {"num_hidden_layers": 7} | NARROW),
    "gemma 3, scaled and capped": (
        "gemma3",
        {"num_hidden_layers": 6, "rope_parameters": LINEAR, "final_logit_softcapping": 3.0},
    ),
    "phi 3": ("phi3", {}),
    "phi 3, a window": ("phi3", {"sliding_window": 7}),
    "phi 3, a part of each head": (
        "phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5}},
    ),
    "phi 3, stretched": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 32}),
    "phi 3, tied": ("phi3", {"tie_word_embeddings": True}),
} | {f"gemma 4, {name}": ("gemma4", shape) for name, shape in GEMMA4.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_f32_gives_the_bits_of_the_same_weights_in_gguf(shape: str, folder: Path) -> None:
    family, changes = SHAPES[shape]
    model = tiny(family, **(ENDS | changes))
    write_gguf(folder / "tiny.gguf", model)
    write_checkpoint(folder / "checkpoint", model, shard="60KB")
    ours = logits(open_index(folder / "checkpoint"))
    truth = transformers_logits(model)
    assert np.abs(ours - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()
    assert np.array_equal(ours.view(np.uint32), logits(open_index(folder / "tiny.gguf")).view(np.uint32))


@pytest.mark.parametrize(("encoding", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
@pytest.mark.parametrize("family", ["gemma2", "gemma3", "gemma4", "phi3"])
def test_half_precision_agrees_with_transformers(family: str, encoding: str, dtype: torch.dtype, folder: Path) -> None:
    model = tiny(family, **ENDS)
    write_checkpoint(folder, model, dtype=dtype)
    index = open_index(folder)
    assert {info.encoding for info in index.tensors.values()} == {encoding}
    truth = transformers_logits(model)
    assert np.abs(logits(index) - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()


def seeing(family: str) -> PreTrainedModel:
    """A tiny model that sees, and whose text part is the tiny one of its family."""
    text = tiny(family, **ENDS, tie_word_embeddings=True)
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    inner = text.config.to_dict() | {"pad_token_id": 0}
    model: PreTrainedModel
    if family == "gemma3":
        sight = vision | {"image_size": 28, "patch_size": 14}
        config = Gemma3Config(text_config=inner, vision_config=sight, mm_tokens_per_image=4, image_token_id=90)
        model = Gemma3ForConditionalGeneration(config)
    else:
        sight = vision | {"num_key_value_heads": 2, "head_dim": 16, "position_embedding_size": 16}
        ids = {"image_token_id": 90, "video_token_id": 91, "audio_token_id": 92}
        model = Gemma4ForConditionalGeneration(Gemma4Config(text_config=inner, vision_config=sight, **ids))
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    return model.eval()


@pytest.mark.parametrize("family", ["gemma3", "gemma4"])
def test_the_text_part_of_a_model_that_sees_answers_as_it_does(family: str, folder: Path) -> None:
    model = seeing(family)
    write_checkpoint(folder, model, shard="60KB")
    truth = transformers_logits(model)
    assert np.abs(logits(open_index(folder)) - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()
    assert max(TOKENS) < 90


def test_names_of_either_age_mean_the_same_text_part(folder: Path) -> None:
    write_checkpoint(folder, seeing("gemma3"))
    before = open_index(folder).tensors
    tensors = load_file(folder / "model.safetensors")
    assert any(name.startswith("language_model.model.") for name in tensors)
    newer = {f"model.{name}".replace("language_model.model.", "language_model."): tensors[name] for name in tensors}
    save_file(newer, folder / "model.safetensors")
    assert {name: info.shape for name, info in open_index(folder).tensors.items()} == {
        name: info.shape for name, info in before.items()
    }


def test_a_gemma_4_answers_alike_whatever_the_chunks(folder: Path) -> None:
    tokenizer, _ = families.sentencepiece("Gemma 4")
    rows = tokenizer.get_vocab_size() + 3
    borrowing = GEMMA4["layers that borrow"] | {"vocab_size": rows, "vocab_size_per_layer_input": rows}
    write_checkpoint(folder, tiny("gemma4", **ENDS, **borrowing), tokenizer=tokenizer)
    change(folder / "tokenizer_config.json", bos_token="<|begin|>", eos_token="<|im_end|>")
    with Engine.load(folder) as engine:
        wanted = engine.fingerprint("The miller's wheel", 8)
        assert len(set(wanted.tokens)) > 1
        for chunk in (1, 3, 512):
            assert engine.fingerprint("The miller's wheel", 8, chunk=chunk) == wanted


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each family."""
    folder = tmp_path_factory.mktemp("saved")
    for family in ("gemma2", "gemma3", "gemma4", "phi3"):
        write_checkpoint(folder / family, tiny(family, **ENDS))
    return folder


@pytest.fixture
def copied(saved: Path, folder: Path) -> Path:
    return Path(shutil.copytree(saved, folder / "saved"))


def test_what_published_files_leave_out_is_as_transformers_has_it(copied: Path) -> None:
    for family, config in (("gemma2", Gemma2Config), ("gemma3", Gemma3TextConfig), ("gemma4", Gemma4TextConfig)):
        path = copied / family / "config.json"
        content = json.loads(path.read_text("utf-8"))
        defaults = config().to_dict()
        kept = ("architectures", "vocab_size", "hidden_size", "num_hidden_layers", "vocab_size_per_layer_input")
        sparse = {key: content[key] for key in kept if key in content}
        path.write_text(json.dumps(sparse), "utf-8")
        metadata = open_index(copied / family).metadata
        assert metadata[f"{family}.attention.head_count"] == defaults["num_attention_heads"]
        assert metadata[f"{family}.attention.sliding_window"] == defaults["sliding_window"]
        assert metadata[f"{family}.context_length"] == defaults["max_position_embeddings"]
        rope = defaults["rope_parameters"]
        assert metadata[f"{family}.rope.freq_base"] == rope.get("full_attention", rope)["rope_theta"]
        local = metadata.get(f"{family}.rope.freq_base_swa")
        assert local == rope.get("sliding_attention", {}).get("rope_theta")
        capped = metadata.get(f"{family}.final_logit_softcapping")
        assert capped == defaults["final_logit_softcapping"]
        if family == "gemma4":
            assert metadata["gemma4.attention.key_length"] == 512
            assert metadata["gemma4.attention.key_length_swa"] == defaults["head_dim"]


def test_older_keys_of_gemma_3_mean_the_same(copied: Path) -> None:
    path = copied / "gemma3"
    change(path / "config.json", rope_parameters=LINEAR)
    current = open_index(path).metadata
    older = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    change(path / "config.json", rope_parameters=..., layer_types=..., sliding_window_pattern=6, **older)
    assert open_index(path).metadata == current


def test_older_keys_of_gemma_4_mean_the_same(copied: Path) -> None:
    path = copied / "gemma4"
    current = open_index(path).metadata
    change(path / "config.json", per_layer_config=..., global_head_dim=32)
    assert open_index(path).metadata == current
    change(path / "config.json", attention_k_eq_v=True, num_global_key_value_heads=1)
    assert open_index(path).metadata["gemma4.attention.head_count_kv"] == [2, 1]


UNSUPPORTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another order of layers": ("gemma3", {"layer_types": ["full_attention"] * 2}, "layer_types"),
    "another period": ("gemma3", {"layer_types": ..., "sliding_window_pattern": 2}, "sliding_window_pattern"),
    "another scale": ("gemma2", {"query_pre_attn_scalar": 64}, "query_pre_attn_scalar is 64; this engine runs 16"),
    "no cap": ("gemma2", {"attn_logit_softcapping": None}, "no attn_logit_softcapping"),
    "a cap": ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "a gate": ("gemma2", {"hidden_activation": "silu"}, "'silu'"),
    "looking ahead": ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    "all looking ahead": ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
    "inputs for other tokens": ("gemma4", {"vocab_size_per_layer_input": 95}, "vocab_size_per_layer_input"),
    "a layer of its own": ("gemma4", {"per_layer_config": {"1": {"rms_norm_eps": 1e-3}}}, "layer 1 a 'rms_norm_eps'"),
    "local positions scaled": (
        "gemma4",
        {"rope_parameters": LINEAR | {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
        "local layers",
    ),
    "positions scaled": ("gemma4", {"rope_parameters": LINEAR}, "'linear' .* default, proportional"),
    "another stretch": ("phi3", {"rope_parameters": {"rope_type": "dynamic"}}, "'dynamic'"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_is_not_run_is_refused_by_name(case: str, copied: Path) -> None:
    family, changes, told = UNSUPPORTED[case]
    change(copied / family / "config.json", **changes)
    with pytest.raises(UnsupportedModelError, match=told):
        open_index(copied / family)


CONTRADICTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "kinds of layers": ("gemma4", {"layer_types": ["sliding_attention"]}, "layer_types"),
    "layers beyond counting": ("gemma4", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
    "no turning of one kind": ("gemma4", {"rope_parameters": {"full_attention": {}}}, "rope_parameters"),
    "no divisors": ("phi3", {"rope_parameters": {"rope_type": "longrope"}}, "long_factor"),
    "a divisor of nothing": ("phi3", {"rope_parameters": LONG | {"short_factor": [0.0] * 8}}, "short_factor"),
    "trained on nothing": ("phi3", {"rope_parameters": LONG | {"original_max_position_embeddings": 0}}, "trained on 0"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_configuration_that_cannot_be_true_is_told(case: str, copied: Path) -> None:
    family, changes, told = CONTRADICTIONS[case]
    change(copied / family / "config.json", **changes)
    with pytest.raises(ModelFileError, match=told):
        open_index(copied / family)


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "gemma4", "phi3"])
def test_damage_anywhere_in_the_configuration_is_a_sentence(family: str, copied: Path) -> None:
    path = copied / family / "config.json"
    sound = json.loads(path.read_text())
    refused = 0
    for key in sound:
        for value in (None, True, -1, 0, 10**40, 0.5, 1e300, "x", [], {}, [[[]]], {"a": {}}, {"1": {"head_dim": -1}}):
            path.write_text(json.dumps(sound | {key: value}))
            try:
                index = open_index(copied / family)
                with closing(WeightStore(index, PlainOps(), Meter())) as store:
                    models.build(index.metadata, store, context=8)
            except MillstreamError as error:
                refused += 1
                assert len(str(error)) < 1000
    assert refused > 80
