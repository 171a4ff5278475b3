"""Qwen3 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, transformers_logits
from tests.tiny import tiny, write_gguf

SHAPES = {
    "grouped heads": {},
    "wide heads": {"head_dim": 32},
    "narrow heads": {"head_dim": 8, "num_key_value_heads": 4},
    "heads that do not split the width": {"num_attention_heads": 6, "num_key_value_heads": 3},
    "one key head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "odd feed-forward": {"intermediate_size": 224, "vocab_size": 33},
    "one layer": {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32},
    "rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}},
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 2.0,
            "original_max_position_embeddings": 32,
        }
    },
    "attention bias": {"attention_bias": True},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("qwen3", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")
