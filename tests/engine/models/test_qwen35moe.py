"""The mixtures of experts of Qwen3.5 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, transformers_logits
from tests.tiny import tiny, write_gguf

SHAPES = {
    "two of eight experts": {},
    "one expert each": {"num_experts_per_tok": 1},
    "many experts": {"num_experts": 32, "num_experts_per_tok": 5},
    "a wide shared expert": {"shared_expert_intermediate_size": 160, "moe_intermediate_size": 64},
    "as many key heads as value heads": {"linear_num_key_heads": 4},
    "two layers": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
}
ENCODINGS = ("F32", "BF16", "Q8_0", "Q4_0", "MXFP4")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("qwen35moe", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ENCODINGS)))
def test_every_encoding_agrees_with_transformers(encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny("qwen35moe")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f16")
