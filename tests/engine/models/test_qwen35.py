"""The text part of Qwen3.5 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from engine import describe
from engine.formats.gguf import read
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import ENCODINGS, check, transformers_logits
from tests.tiny import tiny, write_gguf

ATTENDS, RECURS = "full_attention", "linear_attention"
SHAPES = {
    "shared key heads": {},
    "as many key heads as value heads": {"linear_num_key_heads": 4},
    "many value heads for a key head": {"linear_num_key_heads": 1},
    "wide value heads": {"linear_value_head_dim": 40, "linear_key_head_dim": 24},
    "one value head": {"linear_num_key_heads": 1, "linear_num_value_heads": 1, "linear_value_head_dim": 32},
    "a long convolution": {"linear_conv_kernel_dim": 7},
    "wide attention heads": {"head_dim": 32},
    "heads turned whole": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 1.0}
    },
    "two periods": {"num_hidden_layers": 8, "hidden_size": 32, "intermediate_size": 32},
    "layers in another order": {"num_hidden_layers": 3, "layer_types": [ATTENDS, RECURS, ATTENDS]},
    "tied": {"tie_word_embeddings": True},
    "attention bias": {"attention_bias": True},
    "odd feed-forward": {"intermediate_size": 224, "vocab_size": 33},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("qwen35", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize(("device", "encoding"), sorted(product(DEVICES, ENCODINGS)))
def test_every_encoding_agrees_with_transformers(encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny("qwen35")
    write_gguf(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f16")


def test_blocks_that_only_draft_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's converter counts them in `block_count` and puts them last (`_QwenMtpMixin`)."""
    model = tiny("qwen35")
    write_gguf(tmp_path / "plain.gguf", model, "Q8_0")
    count = GGUFWriter.add_block_count

    def with_drafting(writer: GGUFWriter, blocks: int) -> None:
        count(writer, blocks + 1)
        writer.add_nextn_predict_layers(1)
        writer.add_tensor(f"blk.{blocks}.nextn.eh_proj.weight", np.ones((64, 128), np.float32))
        writer.add_tensor(f"blk.{blocks}.attn_norm.weight", np.ones(64, np.float32))

    monkeypatch.setattr(GGUFWriter, "add_block_count", with_drafting)
    write_gguf(tmp_path / "drafting.gguf", model, "Q8_0")
    plain, drafting = (read(tmp_path / f"{name}.gguf") for name in ("plain", "drafting"))
    assert drafting.metadata["qwen35.block_count"] == 5
    assert drafting.tensors.keys() == plain.tensors.keys()
    assert describe(tmp_path / "drafting.gguf").layers == 4
    check(tmp_path / "drafting.gguf", transformers_logits(model), "native", "f32")
