"""The text part of Gemma 4 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import teacher_forced
from engine import models
from engine.errors import ModelFileError
from engine.formats.gguf import read
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import ENCODINGS, TOKENS, check, transformers_logits
from tests.tiny import load_model, tiny, write_gguf

LOCAL, GLOBAL = "sliding_attention", "full_attention"
SMALL = {"hidden_size": 32, "intermediate_size": 32}
SIX = {"num_hidden_layers": 6, "layer_types": [LOCAL, LOCAL, GLOBAL] * 2} | SMALL
EXPERTS = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32}
SHAPES: dict[str, dict[str, object]] = {
    "one of each kind": {},
    "layers that borrow": SIX | {"num_kv_shared_layers": 3},
    "borrowers twice as wide": SIX | {"num_kv_shared_layers": 3, "use_double_wide_mlp": True},
    "no inputs of layers": {"hidden_size_per_layer_input": 0},
    "values are keys, fewer of them": SIX
    | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0},
    "experts": SIX | {"hidden_size_per_layer_input": 0, "attention_k_eq_v": True} | EXPERTS,
    "experts and inputs of layers": EXPERTS,
    "tied": {"tie_word_embeddings": True},
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


BORROWING = SIX | {"num_kv_shared_layers": 3}


def test_layers_that_borrow_take_no_memory_for_keys_and_values(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny("gemma4", **BORROWING))
    model = load_model(tmp_path / "tiny.gguf", PlainOps())
    assert [(spec.n_kv_heads, spec.key_dim) for spec in model.caches] == [(2, 16), (2, 16), (2, 32)]


def test_what_a_borrowing_layer_was_trained_with_stays_unread(tmp_path: Path) -> None:
    """Published files keep its keys and values; nothing else may be left over."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tiny("gemma4", **BORROWING))
    index = read(path)
    extra = {
        f"blk.4.{name}.weight": replace(index.tensors[f"blk.1.{name}.weight"], name=f"blk.4.{name}.weight")
        for name in ("attn_k", "attn_v", "attn_k_norm")
    }
    index = replace(index, tensors=dict(index.tensors) | extra)
    ops = PlainOps()
    with closing(WeightStore(index, ops, Meter())) as store:
        model = models.build(index.metadata, store, context=40)
        store.require_all_used()
        assert store.bytes_read == store.total
    logits = teacher_forced(model, ops, TOKENS, kv="f32")
    assert np.array_equal(logits, teacher_forced(load_model(path, ops), ops, TOKENS, kv="f32"))
    index = replace(index, tensors=dict(index.tensors) | {"blk.4.other.weight": extra["blk.4.attn_k.weight"]})
    with closing(WeightStore(index, ops, Meter())) as store:
        models.build(index.metadata, store, context=40)
        with pytest.raises(ModelFileError, match=r"blk\.4\.other\.weight, which"):
            store.require_all_used()
