"""SmolLM3 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, transformers_logits
from tests.tiny import tiny, write_gguf

SHAPES = {
    "one layer without positions": {"num_hidden_layers": 4},
    "two layers without positions": {"num_hidden_layers": 8, "hidden_size": 32, "intermediate_size": 32},
    "fewer layers than a period": {"num_hidden_layers": 3},
    "tied": {"num_hidden_layers": 4, "tie_word_embeddings": True},
    "one key head": {"num_hidden_layers": 4, "num_key_value_heads": 1},
    "attention bias": {"num_hidden_layers": 4, "attention_bias": True},
    "yarn": {
        "num_hidden_layers": 4,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 5e6,
            "factor": 2.0,
            "original_max_position_embeddings": 32,
        },
    },
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("smollm3", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")
