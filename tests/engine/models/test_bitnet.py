"""BitNet b1.58 against Transformers' rounding projections, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from bench.accuracy import teacher_forced
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.models.decoder import Decoder
from engine.models.model import Model
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import TOKENS, tolerance
from tests.tiny import load_model, tiny, write_gguf

SHAPES = {
    "grouped heads": {},
    "as many key heads as query heads": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "wide feed-forward": {"intermediate_size": 768, "vocab_size": 33},
    "one layer": {"num_hidden_layers": 1},
    "rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "attention bias": {"attention_bias": True},
}
TEXTS = [TOKENS[start : start + 4] for start in range(0, 40, 4)]
"""Short, so that few of them hold an activation that two programs, a last bit apart, round to neighbouring codes."""
MOVED = 3e-2
"""The error allowed where they do, as a share of the largest logit."""


def truths(model: PreTrainedModel) -> list[np.ndarray]:
    with torch.no_grad():
        return [model(torch.tensor([text])).logits[0].numpy() for text in TEXTS]


def errors(model: Model, ops: Ops, expected: list[np.ndarray]) -> np.ndarray:
    """For each text the largest error, as a share of the largest logit."""
    made = [teacher_forced(model, ops, text, kv="f32") for text in TEXTS]
    return np.array([np.abs(a - b).max() / np.abs(b).max() for a, b in zip(made, expected, strict=True)])


def check(path: Path, model: PreTrainedModel, device: str, bound: float) -> None:
    """Most texts within `bound`, all within `MOVED`. A device of the contract gives the same bits in chunks."""
    with closing(DEVICES[device]()) as ops:
        ours = load_model(path, ops)
        found = errors(ours, ops, truths(model))
        assert np.quantile(found, 0.6) <= bound and found.max() <= MOVED, found
        if device in CONTRACT:
            whole = teacher_forced(ours, ops, TOKENS, kv="f16")
            for chunk in (1, 3, 7):
                parts = teacher_forced(ours, ops, TOKENS, kv="f16", chunk=chunk)
                assert np.array_equal(parts.view(np.uint32), whole.view(np.uint32)), f"chunks of {chunk} differ"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("bitnet", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "TQ2_0")
    check(tmp_path / "tiny.gguf", model, device, tolerance(device, "f32"))


@pytest.mark.parametrize("device", DEVICES)
def test_the_squared_gate_of_the_later_models_agrees_with_transformers(device: str, tmp_path: Path) -> None:
    model = tiny("bitnet-b1.58")
    write_gguf(tmp_path / "tiny.gguf", model, "TQ2_0")
    check(tmp_path / "tiny.gguf", model, device, tolerance(device, "f32"))


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ["F32", "F16", "BF16", "TQ1_0"])))
def test_every_encoding_of_ternary_weights_agrees_with_transformers(encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny("bitnet")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", model, device, tolerance(device, "f32"))


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ["Q8_0", "Q4_0"])))
def test_blocks_of_sixteen_bits_after_tokens_of_eight_move_a_code_at_most(
    encoding: str, device: str, tmp_path: Path
) -> None:
    model = tiny("bitnet")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", model, device, MOVED if device in CONTRACT else tolerance(device, "f32"))


def test_without_the_rounding_of_activations_the_answer_is_another(tmp_path: Path) -> None:
    model = tiny("bitnet")
    write_gguf(tmp_path / "tiny.gguf", model, "TQ2_0")
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = torch.nn.Linear.forward.__get__(module)  # type: ignore[method-assign]
    ops = PlainOps()
    assert errors(load_model(tmp_path / "tiny.gguf", ops), ops, truths(model)).min() > 2 * tolerance("plain", "f32")


def test_projections_are_exact_sums_of_ternary_codes(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny("bitnet"), "TQ2_0")
    with closing(NativeOps(1)) as ops:
        model = load_model(tmp_path / "tiny.gguf", ops)
        assert isinstance(model, Decoder)
        for layer in model.layers:
            mixer, after = layer.mixer, layer.feed_forward
            for handle in (mixer.q, mixer.k, mixer.v, mixer.output, after.gate, after.up, after.down):
                assert handle.input == "int8"
        assert model.head.input == "blocks"
