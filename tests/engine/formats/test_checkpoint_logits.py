"""Checkpoints as Transformers saves them: its own logits, and the bits of the same weights in a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.accuracy import teacher_forced
from engine import models
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.memory import tensor_reader
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from tests.engine.formats.checkpoints import write_checkpoint
from tests.engine.models.judge import TOKENS, tolerance, transformers_logits
from tests.tiny import CONTEXT, SHAPE, tiny, write_gguf

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
SHAPES: dict[str, dict[str, object]] = {
    "grouped heads": {},
    "wide heads": {"head_dim": 32},
    "as many key heads as query heads": {"num_key_value_heads": 4},
    "four layers": {"num_hidden_layers": 4},
    "tied": {"tie_word_embeddings": True},
    "attention bias": {"attention_bias": True},
    "rope theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "yarn": {"rope_parameters": YARN},
    "llama 3 rope": {"rope_parameters": LLAMA3},
}
FAMILIES = ("llama", "qwen2", "qwen3", "smollm3")
ENDS = {"bos_token_id": 1, "eos_token_id": 2}
"""Ids that the small vocabulary has, whatever the family's own are."""


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def logits(index: TensorIndex, kv: str = "f32") -> np.ndarray:
    with closing(NativeOps(threads=1)) as ops:
        with closing(WeightStore(index, ops, Meter())) as store:
            model = models.build(index.metadata, store, context=CONTEXT)
        return teacher_forced(model, ops, TOKENS, kv=kv)


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_f32_gives_the_bits_of_the_same_weights_in_gguf(shape: str, family: str, shard: str, folder: Path) -> None:
    model = tiny(family, **ENDS, **SHAPES[shape])
    write_gguf(folder / "tiny.gguf", model)
    write_checkpoint(folder / "checkpoint", model, shard=shard)
    index = open_index(folder / "checkpoint")
    assert len(index.paths) == (1 if shard == "5GB" else len(list((folder / "checkpoint").glob("*.safetensors"))))
    ours = logits(index)
    truth = transformers_logits(model)
    assert np.abs(ours - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()
    if shape != "llama 3 rope":  # the file's divisors come from float32 frequencies, and differ in their last bit
        assert np.array_equal(ours.view(np.uint32), logits(open_index(folder / "tiny.gguf")).view(np.uint32))


@pytest.mark.parametrize(("encoding", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_agrees_with_transformers(family: str, encoding: str, dtype: torch.dtype, folder: Path) -> None:
    model = tiny(family, **ENDS, attention_bias=True)
    write_checkpoint(folder, model, dtype=dtype, shard="60KB")
    index = open_index(folder)
    assert {info.encoding for info in index.tensors.values()} == {encoding}
    truth = transformers_logits(model)
    assert np.abs(logits(index) - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()


def test_heads_are_joined_however_many_fit_into_one_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    write_checkpoint(folder, model)
    index = open_index(folder)
    whole = logits(index)
    head = index.tensors["blk.0.attn_q.weight"].unit_bytes
    for piece in (head // 3, head, 3 * head):
        monkeypatch.setattr(tensor_reader, "PIECE", piece)
        assert np.array_equal(logits(index).view(np.uint32), whole.view(np.uint32)), piece


def test_mistral_without_a_window_agrees_with_transformers(folder: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(3)
    model = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None, initializer_range=0.2)).eval()
    write_checkpoint(folder, model)
    truth = transformers_logits(model)
    assert np.abs(logits(open_index(folder)) - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()
