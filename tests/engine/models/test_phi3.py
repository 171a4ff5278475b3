"""Phi-3 and Phi-4 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.formats.gguf import read
from engine.kernels.native import NativeOps
from engine.models.decoder import Decoder
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, transformers_logits
from tests.tiny import load_model, tiny, write_gguf


def longrope(original: int, dims: int) -> dict[str, object]:
    """LongRoPE of a model that was first trained on so many positions, over so many elements of a head of 16."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": dims / 16,
        "original_max_position_embeddings": original,
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0][: dims // 2],
        "short_factor": [1.0, 1.0, 1.1, 1.1, 1.2, 1.3, 1.4, 2.0][: dims // 2],
    }
    return {"rope_parameters": rope, "original_max_position_embeddings": original}


SHAPES = {
    "no window": {},
    "a window": {"sliding_window": 7},
    "a window as long as the text": {"sliding_window": 40},
    "as many key heads as query heads": {"num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "odd feed-forward": {"intermediate_size": 224, "vocab_size": 33},
    "part of a head turns": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    },
    "longrope past its first length": longrope(32, 16),
    "longrope within its first length": longrope(64, 16),
    "longrope in part of a head": longrope(32, 12) | {"sliding_window": 9},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    model = tiny("phi3", **SHAPES[shape])
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


def test_fused_projections_share_the_bytes_of_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tiny("phi3"), "Q8_0")
    with closing(NativeOps(1)) as ops:
        model = load_model(path, ops)
        assert isinstance(model, Decoder)
        layer = model.layers[1]
        for name, parts in (
            ("attn_qkv", (layer.mixer.q, layer.mixer.k, layer.mixer.v)),
            ("ffn_up", (layer.feed_forward.gate, layer.feed_forward.up)),
        ):
            info = read(path).tensors[f"blk.1.{name}.weight"]
            starts = [part.weight.data.ctypes.data for part in parts]
            sizes = [part.weight.data.nbytes for part in parts]
            assert sum(sizes) == info.nbytes
            assert np.diff(starts).tolist() == sizes[:-1]
