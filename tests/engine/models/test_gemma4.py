"""The text part of Gemma 4 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import ENCODINGS, check, transformers_logits
from tests.tiny import tiny, write_gguf

LOCAL, GLOBAL = "sliding_attention", "full_attention"
SMALL = {"hidden_size": 32, "intermediate_size": 32}
SIX = {"num_hidden_layers": 6, "layer_types": [LOCAL, LOCAL, GLOBAL] * 2} | SMALL
SHAPES: dict[str, dict[str, object]] = {
    "one of each kind": {},
    "layers that borrow": SIX | {"num_kv_shared_layers": 3},
    "borrowers twice as wide": SIX | {"num_kv_shared_layers": 3, "use_double_wide_mlp": True},
    "no inputs of layers": {"hidden_size_per_layer_input": 0},
    "values are keys, fewer of them": SIX
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
    "a cap that bites": {"final_logit_softcapping": 3.0},
    "heads of one width": {"global_head_dim": 16},
    "a window as long as the text": {"sliding_window": 40},
    "all of a head turns": {
        "rope_parameters": {
            LOCAL: {"rope_type": "default", "rope_theta": 5e3},
            GLOBAL: {"rope_type": "proportional", "rope_theta": 1e5, "partial_rotary_factor": 1.0},
        }
    },
    "odd widths": {"intermediate_size": 224, "vocab_size": 33, "vocab_size_per_layer_input": 33},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("gemma4", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ENCODINGS)))
def test_every_encoding_agrees_with_transformers(encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny("gemma4")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f16")
