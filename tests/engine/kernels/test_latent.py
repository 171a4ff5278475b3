"""What latent attention needs: keys that hold their values, and projections of each head by rows of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise, product

import numpy as np
import pytest

from engine import weights
from engine.decode.cache import KVCache, cache_bytes, position_bytes
from engine.errors import NumericsError, SettingsError
from engine.kernels.kv import holds
from engine.kernels.native import NativeOps
from engine.kernels.ops import AttentionSpec, CacheSpec, Ops, Stack
from engine.kernels.plain import PlainOps
from engine.kernels.plain.attention import PlainCache
from engine.kernels.reference import ReferenceCache, ReferenceOps
from engine.memory.meter import Meter
from engine.types import CACHE_KINDS
from tests.engine.devices import DEVICES
from tests.engine.kernels.cases import packed_rows, same_bits
from tests.engine.kernels.test_native import runnable

LENGTH, LAST = 150, 12
"""Positions, and those whose rows are looked at."""
SHAPES = {
    "small": (CacheSpec(1, 24, 16, latent=True), 6),
    "odd": (CacheSpec(1, 21, 13, latent=True), 3),
    "several key heads": (CacheSpec(2, 64, 32, latent=True), 10),
    "DeepSeek-V2-Lite": (CacheSpec(1, 576, 512, latent=True), 16),
    "heads in uneven shares": (CacheSpec(1, 40, 32, latent=True), 37),
    "heads of DeepSeek-V3": (CacheSpec(1, 96, 64, latent=True), 128),
}
CASES = [(name, kind) for name, kind in product(SHAPES, CACHE_KINDS) if holds(SHAPES[name][0], kind)]


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


def attend(ops: Ops, spec: CacheSpec, n_heads: int, kind: str, chunks: Sequence[int], **how: float) -> np.ndarray:
    """The rows of the last positions, as many as `chunks` has, after others that are only stored."""
    q, k = rows(spec, n_heads)
    v = k.reshape(LENGTH, spec.n_kv_heads, -1)[..., : spec.value_dim].reshape(LENGTH, -1)
    layer = ops.cache(spec, LENGTH, kind)
    heads = AttentionSpec(n_heads, spec.key_dim**-0.5, **how)

    def run(start: int, stop: int) -> np.ndarray:
        parts = [None if part is None else tensor(ops, part[start:stop]) for part in (q, k, None if spec.latent else v)]
        if start == 0 and isinstance(layer, PlainCache | ReferenceCache):  # which attend slowly
            layer.store(*parts[1:], start)
            return q[:0]
        return ops.host(ops.attention(*parts, layer, heads, start)).copy()

    starts = [0, *accumulate(chunks, initial=LENGTH - sum(chunks))]
    return np.concatenate([run(start, stop) for start, stop in pairwise(starts)][1:])


@cache
def apart(shape: str, kind: str) -> np.ndarray:
    """What the plain twin makes of the last rows where keys and values are two arrays."""
    spec, n_heads = SHAPES[shape]
    return attend(PlainOps(), replace(spec, latent=False), n_heads, kind, [LAST])


@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_a_latent_cache_gives_what_keys_and_values_apart_give(native: NativeOps, shape: str, kind: str) -> None:
    for chunks in ([LAST], [1] * LAST, [3, 9]):
        made = attend(native, *SHAPES[shape], kind, chunks)
        assert same_bits(made, apart(shape, kind)[LAST - sum(chunks) :]), chunks


@pytest.mark.parametrize(("shape", "kind"), CASES)
def test_so_does_the_plain_twin(shape: str, kind: str) -> None:
    assert same_bits(attend(PlainOps(), *SHAPES[shape], kind, [5, 1]), apart(shape, kind)[LAST - 6 :])


@pytest.mark.parametrize("how", [{"window": 30}, {"softcap": 4.0}])
def test_windows_and_caps_hold_for_a_latent_cache(native: NativeOps, how: dict[str, float]) -> None:
    spec, n_heads = SHAPES["several key heads"]
    expected = attend(PlainOps(), replace(spec, latent=False), n_heads, "f16", [8], **how)
    for chunks in ([8], [1] * 8):
        assert same_bits(attend(native, spec, n_heads, "f16", chunks, **how), expected)


@pytest.mark.parametrize("kind", CACHE_KINDS)
def test_the_plain_twin_is_near_the_reference(kind: str) -> None:
    made, exact = (
        attend(ops, *SHAPES["several key heads"], kind, [LAST]) for ops in (PlainOps(), ReferenceOps("float64"))
    )
    np.testing.assert_allclose(made, exact, atol=2e-5)


@pytest.mark.parametrize("kind", CACHE_KINDS)
def test_nothing_is_held_twice(kind: str) -> None:
    spec = CacheSpec(1, 576, 512, latent=True)
    whole = {"f32": 576 * 4, "f16": 576 * 2, "q8_0": 18 * 34}[kind]
    assert position_bytes([spec], kind) == whole
    with closing(NativeOps(1)) as native:
        for ops in (native, ReferenceOps()):
            assert ops.cache(spec, 64, kind).nbytes == 64 * whole
            with closing(KVCache(ops, [spec] * 3, 64, kind, Meter())) as made:
                assert made.nbytes == cache_bytes([spec] * 3, 64, kind) == 3 * 64 * whole


@pytest.mark.parametrize("device", DEVICES)
def test_a_latent_key_too_large_or_too_odd_for_its_cache_is_an_error(device: str) -> None:
    with closing(DEVICES[device]()) as ops:
        layer = ops.cache(CacheSpec(1, 24, 16, latent=True), 4, "f16")
        row = np.ones((1, 24), np.float32)
        large = row.copy()
        large[0, 20] = 1e5
        with pytest.raises(NumericsError, match="f32 cache"):
            ops.attention(tensor(ops, row), tensor(ops, large), None, layer, AttentionSpec(1, 1.0), 0)
        with pytest.raises(SettingsError, match="f16 cache"):
            ops.cache(CacheSpec(1, 40, 32, latent=True), 4, "q8_0")


PROJECTIONS = [
    ("Q8_0", 3, 5, 96),
    ("Q4_1", 16, 24, 32),
    ("Q4_K", 2, 17, 256),
    ("Q6_K", 5, 9, 512),
    ("F16", 4, 7, 12),
    ("F32", 1, 9, 20),
]


@pytest.mark.parametrize(("encoding", "heads", "rows", "columns"), PROJECTIONS)
def test_each_head_has_rows_of_its_own(native: NativeOps, encoding: str, heads: int, rows: int, columns: int) -> None:
    draws = np.random.default_rng(heads)
    if encoding in ("F16", "F32"):
        values = draws.standard_normal((heads * rows, columns), np.float32)
        data = values.astype(np.float16 if encoding == "F16" else np.float32).view(np.uint8)
    else:
        data = packed_rows(draws, encoding, heads * rows + 1, columns)[:-1]
    weight = Stack("w", encoding, heads, rows, columns, data.reshape(heads, rows, -1))
    matrices = weights.get(encoding).decode(data).astype(np.float64).reshape(heads, rows, columns)
    plain = PlainOps()
    for n in (1, 3, 4, 13):
        x = draws.standard_normal((n, heads * columns), np.float32)
        expected = plain.head_linears(x, plain.stack(weight))
        assert same_bits(native.host(native.head_linears(tensor(native, x), native.stack(weight))), expected)
        exact = np.einsum("nha,hba->nhb", x.reshape(n, heads, columns), matrices).reshape(n, -1)
        size = np.abs(exact).max()
        assert np.abs(expected - exact).max() < 1e-4 * size
        judge = ReferenceOps("float64")
        made = judge.head_linears(judge.tensor(x), judge.stack(weight)).numpy()
        np.testing.assert_allclose(made, exact, atol=1e-12 * size)


@pytest.mark.parametrize(("encoding", "heads", "rows", "columns"), PROJECTIONS)
def test_matrices_the_other_way_round_are_decoded(
    native: NativeOps, encoding: str, heads: int, rows: int, columns: int
) -> None:
    """Here every head's rows lie beside others, as those of keys lie beside those of values."""
    draws = np.random.default_rng(heads)
    if encoding in ("F16", "F32"):
        values = draws.standard_normal((heads * (rows + 2), columns), np.float32)
        data = values.astype(np.float16 if encoding == "F16" else np.float32).view(np.uint8)
    else:
        data = packed_rows(draws, encoding, heads * (rows + 2) + 1, columns)[:-1]
    data = data.reshape(heads, rows + 2, -1)[:, 1:-1]
    weight = Stack("w", encoding, heads, rows, columns, data)
    matrices = np.stack([weights.get(encoding).decode(part) for part in data]).astype(np.float64)
    plain, judge = PlainOps(), ReferenceOps("float64")
    for n in (1, 3, 4, 13):
        x = draws.standard_normal((n, heads * rows), np.float32)
        expected = plain.head_linears(x, plain.stack(weight), transposed=True)
        made = native.head_linears(tensor(native, x), native.stack(weight), transposed=True)
        assert same_bits(native.host(made), expected)
        exact = np.einsum("nha,hab->nhb", x.reshape(n, heads, rows), matrices).reshape(n, -1)
        size = np.abs(exact).max()
        assert np.abs(expected - exact).max() < 1e-5 * size
        made = judge.head_linears(judge.tensor(x), judge.stack(weight), transposed=True).numpy()
        np.testing.assert_allclose(made, exact, atol=1e-12 * size)


def test_a_long_history_of_many_heads_is_merged_a_stretch_at_a_time(native: NativeOps) -> None:
    """Its parts together would take more memory than a row may hold."""
    spec, n_heads, length = CacheSpec(1, 8, 512), 600, 900
    draws = np.random.default_rng(3)
    q = draws.standard_normal((1, n_heads * 8), np.float32)
    k, v = (draws.standard_normal((length, width), np.float32) for width in (8, 512))
    made = []
    for ops in (native, PlainOps()):
        layer = ops.cache(spec, length, "f32")
        if isinstance(layer, PlainCache):
            layer.store(k[:-1], v[:-1], 0)
        else:
            few = AttentionSpec(1, 1.0)
            ops.attention(tensor(ops, k[:-1]), tensor(ops, k[:-1]), tensor(ops, v[:-1]), layer, few, 0)
        last = (tensor(ops, part) for part in (q, k[-1:], v[-1:]))
        made.append(ops.host(ops.attention(*last, layer, AttentionSpec(n_heads, 0.35), length - 1)))
    assert same_bits(*made)
