"""Rotary tables against their formula and against Transformers."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.models.rotary import Turn, inverse_frequencies


def test_every_entry_is_the_float64_value_rounded_once() -> None:
    table = Turn(inverse_frequencies(10000.0, 64), "interleaved").table(1000)
    assert table.cos.shape == table.sin.shape == (1000, 32)
    assert table.cos.dtype == table.sin.dtype == np.float32
    for position, i in [(0, 0), (1, 0), (999, 0), (999, 31), (517, 13)]:
        angle = position * 10000.0 ** (-2 * i / 64)
        assert table.cos[position, i] == np.float32(math.cos(angle))
        assert table.sin[position, i] == np.float32(math.sin(angle))


def test_tables_agree_with_transformers() -> None:
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=128)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 128, 64), torch.arange(128)[None])
    table = Turn(inverse_frequencies(10000.0, 32), "halves").table(128)
    # Transformers takes angles in float32: half a unit in the last place of 127 radians.
    np.testing.assert_allclose(table.cos, cos[0, :, :16].numpy(), rtol=0, atol=127 * 2**-23)
    np.testing.assert_allclose(table.sin, sin[0, :, :16].numpy(), rtol=0, atol=127 * 2**-23)


def test_a_long_table_takes_little_more_than_itself_and_has_the_same_bits_as_its_parts() -> None:
    turn = Turn(inverse_frequencies(500000.0, 128), "halves", amplitude=1.1)
    tracemalloc.start()
    try:
        table = turn.table(16_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * (table.cos.nbytes + table.sin.nbytes)
    for start, stop in ((0, 7), (1020, 1030), (15_990, 16_000)):
        part = turn.at(np.arange(start, stop))
        np.testing.assert_array_equal(table.cos[start:stop], part.cos)
        np.testing.assert_array_equal(table.sin[start:stop], part.sin)
