"""Llama against Transformers, in float32 over the same weights."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import teacher_forced
from engine.kernels.reference import ReferenceOps
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import ENCODINGS, TOKENS, check, transformers_logits
from tests.tiny import CONTEXT, load_model, tiny, write_gguf

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def longrope(original: int) -> dict[str, object]:
    """LongRoPE of a model that was first trained on so many positions."""
    lists = {"long_factor": [1.0, 1.5, 2, 3, 4, 6, 8, 9], "short_factor": [1.0, 1, 1.1, 1.1, 1.2, 1.3, 1.4, 2]}
    return {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": original} | lists


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
SHAPES = {
    "grouped heads": {},
    "as many key heads as query heads": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 32},
    "narrow heads": {"head_dim": 8, "num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "odd feed-forward": {"intermediate_size": 224, "vocab_size": 33},
    "one layer": {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32},
    "rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "llama 3 rope": {"rope_parameters": LLAMA3},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "yarn": {"rope_parameters": YARN},
    "yarn with its own numbers": {
        "rope_parameters": YARN | {"attention_factor": 0.8, "beta_fast": 3.0, "beta_slow": 0.25}
    },
    "longrope past its first length": {"rope_parameters": longrope(32)},
    "longrope within its first length": {"rope_parameters": longrope(CONTEXT)},
    "attention bias": {"attention_bias": True},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("llama", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ENCODINGS)))
@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_every_encoding_agrees_with_transformers(encoding: str, kv: str, device: str, tmp_path: Path) -> None:
    model = tiny("llama")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, kv)


def test_the_reference_in_float64_agrees_with_transformers_in_float64(tmp_path: Path) -> None:
    model = tiny("llama")
    write_gguf(tmp_path / "tiny.gguf", model)
    ops = ReferenceOps("float64")
    logits = teacher_forced(load_model(tmp_path / "tiny.gguf", ops), ops, TOKENS, kv="f32")
    truth = transformers_logits(model.double())
    # Transformers keeps norms and rotary positions in float32.
    assert np.abs(logits - truth).max() <= 1e-6 * np.abs(truth).max()
