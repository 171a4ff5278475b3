"""What latent attention needs: keys that hold their values, and projections of each head by rows of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from engine import weights
from engine.decode.cache import KVCache, position_bytes
from engine.errors import NumericsError, SettingsError
from engine.kernels.native import NativeOps
from engine.kernels.ops import AttentionSpec, CacheSpec, LayerCache, Ops, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.memory.meter import Meter
from tests.engine.devices import DEVICES
from tests.engine.kernels.cases import packed_rows, same_bits
from tests.engine.kernels.test_native import runnable

LENGTH = 150
SHAPES = {
    "small": (CacheSpec(1, 24, 16, latent=True), 6),
    "odd": (CacheSpec(1, 21, 13, latent=True), 3),
    "several key heads": (CacheSpec(2, 32, 24, latent=True), 10),
    "DeepSeek-V2-Lite": (CacheSpec(1, 576, 512, latent=True), 16),
    "a share of its own for the last heads": (CacheSpec(1, 40, 32, latent=True), 37),
    "as many heads as DeepSeek-V3": (CacheSpec(1, 96, 64, latent=True), 128),
}
CASES = [(name, kind) for name, kind in product(SHAPES, ("f32", "f16", "q8_0")) if kind != "q8_0" or "32" in name]


@pytest.fixture(params=[(isa, threads) for isa in runnable() for threads in (1, 3)], ids=lambda p: f"{p[0]}-{p[1]}")
def native(request: pytest.FixtureRequest) -> Iterator[NativeOps]:
    isa, threads = request.param
    with closing(NativeOps(threads, isa)) as made:
        yield made


def tensor(ops: Ops, values: np.ndarray) -> object:
    return ops.tensor(np.ascontiguousarray(values, np.float32))


def rows(spec: CacheSpec, n_heads: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(n_heads)
    q = draws.standard_normal((LENGTH, n_heads * spec.key_dim), np.float32) * np.float32(3)
    return q, draws.standard_normal((LENGTH, spec.n_kv_heads * spec.key_dim), np.float32)


def attend(ops: Ops, spec: CacheSpec, n_heads: int, kind: str, chunks: list[int], **how: float) -> np.ndarray:
    """The rows of the last positions, as many as `chunks` has; those before are stored without a look."""
    q, k = rows(spec, n_heads)
    values = k.reshape(LENGTH, spec.n_kv_heads, -1)[..., : spec.value_dim].reshape(LENGTH, -1)
    cache = ops.cache(spec, LENGTH, kind)
    heads = AttentionSpec(n_heads, spec.key_dim**-0.5, **how)
    start, parts = 0, []
    for n in [LENGTH - sum(chunks), *chunks]:
        part = slice(start, start + n)
        v = None if spec.latent else tensor(ops, values[part])
        parts.append(ops.host(ops.attention(tensor(ops, q[part]), tensor(ops, k[part]), v, cache, heads, start)).copy())
        start += n
    return np.concatenate(parts[1:])


@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_a_latent_cache_gives_what_keys_and_values_apart_give(native: NativeOps, shape: str, kind: str) -> None:
    spec, n_heads = SHAPES[shape]
    plain = PlainOps()
    expected = attend(plain, replace(spec, latent=False), n_heads, "f32" if kind == "q8_0" else kind, [20])
    if kind == "q8_0":  # the blocks of a key, whatever part of them the value takes
        expected = attend(plain, spec, n_heads, kind, [20])
    for chunks in ([20], [1] * 6, [3, 9]):
        for ops in (plain, native):
            made = attend(ops, spec, n_heads, kind, chunks)
            assert same_bits(made, expected[20 - sum(chunks) :]), (ops.name, chunks)


@pytest.mark.parametrize("how", [{"window": 30}, {"softcap": 4.0}])
def test_windows_and_caps_hold_for_a_latent_cache(native: NativeOps, how: dict[str, float]) -> None:
    spec, n_heads = SHAPES["several key heads"]
    expected = attend(PlainOps(), replace(spec, latent=False), n_heads, "f16", [8], **how)
    for chunks in ([8], [1] * 8):
        assert same_bits(attend(native, spec, n_heads, "f16", chunks, **how), expected)


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_the_plain_twin_is_near_the_reference(kind: str) -> None:
    spec, n_heads = SHAPES["several key heads"]
    made, exact = (attend(ops, spec, n_heads, kind, [20]) for ops in (PlainOps(), ReferenceOps("float64")))
    np.testing.assert_allclose(made, exact, atol=2e-5)
