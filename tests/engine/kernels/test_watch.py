"""Operations that overflow on finite input, and those without a weight of their own to name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from engine.errors import NumericsError
from engine.kernels.ops import AttentionSpec, CacheSpec, LayerCache, Ops, Rotary, Tensor, Weight
from engine.kernels.watch import Watch
from tests.engine.devices import DEVICES

SPEC = CacheSpec(1, 32, 32)
HEADS = AttentionSpec(1, 1.0)


@pytest.fixture(params=DEVICES)
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    with closing(DEVICES[request.param]()) as made:
        yield made


@pytest.fixture
def caches(ops: Ops) -> list[LayerCache]:
    return [ops.cache(SPEC, 8, "f32") for _ in range(3)]


def matrix(ops: Ops, name: str, values: np.ndarray) -> object:
    values = np.ascontiguousarray(values, np.float32)
    return ops.matrix(Weight(name, "F32", *values.shape, values.view(np.uint8)))


def tensor(ops: Ops, values: np.ndarray) -> Tensor:
    return ops.embed(matrix(ops, "x", values), range(len(values)))


def refused(where: str, row: int) -> pytest.RaisesExc[NumericsError]:
    return pytest.raises(NumericsError, match=re.escape(f"infinity in {where}, first at position {4 + row}:"))


def test_results_are_those_of_the_watched_device(ops: Ops, caches: list[LayerCache]) -> None:
    draws = np.random.default_rng(1)
    x, w = draws.standard_normal((3, 32), np.float32), draws.standard_normal((32, 32), np.float32)
    table = Rotary(np.full((8, 16), 0.6, np.float32), np.full((8, 16), 0.8, np.float32), "halves")
    results = []
    for device in (ops, Watch(ops, caches, 0)):
        weight, norm, bias = matrix(device, "w", w), device.vector(w[0]), device.vector(w[1])
        rows = tensor(device, x)
        normed = device.rms_norm(rows, norm, 1e-5)
        q, k, v = device.linears(normed, [weight] * 3)
        q = device.rotary(q, 1, table, 2)
        attended = device.attention(q, k, v, caches[0], HEADS, 0, device.vector(w[2][:1]))
        out = device.linear(device.gated(attended, weight, weight), weight, bias=bias, residual=rows)
        results.append(device.host(device.last(device.rows(out, 0, 2), 1)).copy())
    assert results[0].tobytes() == results[1].tobytes()
    assert np.isfinite(results[0]).all() and results[0].any()


def test_attention_that_overflows_is_named_by_its_layer(ops: Ops, caches: list[LayerCache]) -> None:
    watch = Watch(ops, caches, 4)
    before = tensor(ops, np.ones((4, 32), np.float32))
    for cache in caches:
        ops.attention(before, before, before, cache, HEADS, 0)
    rows = np.ones((2, 32), np.float32)
    x = tensor(ops, rows)
    watch.attention(x, x, x, caches[0], HEADS, 4)
    rows[1] = 1e25
    huge = tensor(ops, rows)
    with refused("layer 1 (the attention of blk.1)", 1):
        watch.attention(huge, huge, x, caches[1], HEADS, 4)


def test_attention_over_what_another_layer_stored_is_named_by_its_queries(ops: Ops, caches: list[LayerCache]) -> None:
    x = tensor(ops, np.ones((6, 32), np.float32))
    ops.attention(x, x, x, caches[1], HEADS, 0)
    x = ops.last(x, 2)
    weight = matrix(ops, "blk.9.attn_q.weight", np.eye(32))
    sound, bad = (ops.vector(np.full(32, value, np.float32)) for value in (1, np.nan))
    watch = Watch(ops, caches, 4)
    q = watch.rms_norm(watch.linear(x, weight), sound, 1e-5)
    assert np.isfinite(ops.host(watch.attention(q, None, None, caches[1], HEADS, 4))).all()
    q = watch.rms_norm(watch.linear(x, weight), bad, 1e-5)
    with refused("layer 9 (the norm before the attention after blk.9.attn_q.weight)", 0):
        watch.attention(q, None, None, caches[1], HEADS, 4)


def test_a_norm_or_a_turn_waits_for_the_next_name(ops: Ops, caches: list[LayerCache]) -> None:
    x = tensor(ops, np.ones((3, 32), np.float32))
    bad = ops.vector(np.full(32, np.nan, np.float32))
    sound = ops.vector(np.ones(32, np.float32))
    weight = matrix(ops, "blk.7.ffn_up.weight", np.eye(32))
    turns = Rotary(np.ones((8, 16), np.float32), np.ones((8, 16), np.float32), "halves")
    turns.cos[6] = np.inf

    watch = Watch(ops, caches, 4)
    normed = watch.rms_norm(x, bad, 1e-5)
    with refused("layer 7 (the norm before blk.7.ffn_up.weight)", 0):
        watch.linear(normed, weight)

    watch = Watch(ops, caches, 4)
    q = watch.rotary(watch.rms_norm(x, sound, 1e-5), 1, turns, 4)
    with refused("layer 2 (the rotary positions before the attention of blk.2)", 2):
        watch.attention(q, x, x, caches[2], HEADS, 4)

    watch = Watch(ops, caches, 4)
    q = watch.rotary(watch.rms_norm(x, bad, 1e-5), 1, turns, 4)
    with refused("layer 0 (the norm before the attention of blk.0)", 0):
        watch.attention(q, x, x, caches[0], HEADS, 4)


def test_a_bias_is_named_with_its_weight(ops: Ops, caches: list[LayerCache]) -> None:
    x = tensor(ops, np.ones((2, 32), np.float32))
    weight = matrix(ops, "blk.2.attn_q.weight", np.eye(32))
    with refused("layer 2 (blk.2.attn_q.weight or its bias)", 0):
        Watch(ops, caches, 4).linear(x, weight, bias=ops.vector(np.full(32, np.inf, np.float32)))
