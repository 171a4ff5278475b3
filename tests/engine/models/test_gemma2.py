"""Gemma 2 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import teacher_forced
from engine.kernels.reference import ReferenceOps
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import TOKENS, check, transformers_logits
from tests.tiny import load_model, tiny, write_gguf

SHAPES = {
    "near and far layers": {"num_hidden_layers": 3},
    "caps that bite": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "a window as long as the text": {"sliding_window": 40},
    "wide heads": {"head_dim": 32, "query_pre_attn_scalar": 32},
    "one key head": {"num_key_value_heads": 1},
    "odd feed-forward": {"intermediate_size": 224, "vocab_size": 33},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("gemma2", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


def test_the_largest_model_scales_its_scores_by_a_share_of_its_width(tmp_path: Path) -> None:
    model = tiny("gemma2", num_hidden_layers=46, hidden_size=32, intermediate_size=32, query_pre_attn_scalar=8)
    write_gguf(tmp_path / "tiny.gguf", model)
    ops = ReferenceOps()
    logits = teacher_forced(load_model(tmp_path / "tiny.gguf", ops), ops, TOKENS, kv="f32")
    truth = transformers_logits(model)
    # So many layers add up Transformers' own rounding; with another scale the logits have nothing in common.
    assert np.abs(logits - truth).max() <= 2e-4 * np.abs(truth).max()
