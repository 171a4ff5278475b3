"""Llama against Transformers, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from bench.accuracy import teacher_forced
from engine.kernels.reference import ReferenceOps
from tests.engine.devices import CONTRACT, DEVICES
from tests.tiny import load_model, tiny_llama, write_llama

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
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
    "attention bias": {"attention_bias": True},
}
ENCODINGS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")
TOKENS = [int(token) for token in np.random.default_rng(4).integers(0, 33, 40)]


def tolerance(device: str, kv: str) -> float:
    """The largest error allowed, as a share of the largest logit."""
    if kv == "f16":
        return 5e-3
    return 1e-3 if device in CONTRACT else 2e-5


def transformers_logits(model: LlamaForCausalLM) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def check(path: Path, truth: np.ndarray, device: str, kv: str) -> None:
    """Whole, in chunks, and in single steps; a device of the contract gives the same bits each time."""
    bound = tolerance(device, kv) * np.abs(truth).max()
    with closing(DEVICES[device]()) as ops:
        model = load_model(path, ops)
        whole = teacher_forced(model, ops, TOKENS, kv=kv)
        assert np.abs(whole - truth).max() <= bound
        for chunk in (1, 3, 7):
            parts = teacher_forced(model, ops, TOKENS, kv=kv, chunk=chunk)
            assert np.abs(parts - truth).max() <= bound
            if device in CONTRACT:
                assert np.array_equal(parts.view(np.uint32), whole.view(np.uint32)), f"chunks of {chunk} differ"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny_llama(**SHAPES[shape])
    write_llama(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ENCODINGS)))
@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_every_encoding_agrees_with_transformers(encoding: str, kv: str, device: str, tmp_path: Path) -> None:
    model = tiny_llama()
    write_llama(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, kv)


def test_the_reference_in_float64_agrees_with_transformers_in_float64(tmp_path: Path) -> None:
    model = tiny_llama()
    write_llama(tmp_path / "tiny.gguf", model)
    ops = ReferenceOps("float64")
    logits = teacher_forced(load_model(tmp_path / "tiny.gguf", ops), ops, TOKENS, kv="f32")
    truth = transformers_logits(model.double())
    # Transformers keeps norms and rotary positions in float32.
    assert np.abs(logits - truth).max() <= 1e-6 * np.abs(truth).max()
