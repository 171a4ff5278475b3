"""Attention over what earlier calls stored: `until` may lie past a call's own rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from engine.kernels.native import NativeOps
from engine.kernels.ops import AttentionSpec, CacheSpec, Ops
from tests.engine.devices import DEVICES
from tests.engine.kernels.test_native import runnable

ROWS, HEADS, DIM = 200, 2, 16
MAKERS: dict[str, Callable[[], Ops]] = {
    **DEVICES,
    **{f"native {isa}": lambda isa=isa: NativeOps(3, isa) for isa in runnable()},
}


@pytest.mark.parametrize("size", [1, 7, 70])
@pytest.mark.parametrize("device", MAKERS)
def test_rows_in_pieces_see_all_that_is_stored(device: str, size: int) -> None:
    random = np.random.default_rng(4)
    q, k, v = (random.standard_normal((ROWS, HEADS * DIM), np.float32) for _ in range(3))
    spec = AttentionSpec(HEADS, 0.25)
    scores = np.einsum("ihd,jhd->hij", *(rows.reshape(ROWS, HEADS, DIM).astype(np.float64) for rows in (q, k))) * 0.25
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    wanted = np.einsum("hij,jhd->ihd", shares, v.reshape(ROWS, HEADS, DIM)).reshape(ROWS, -1)
    with closing(MAKERS[device]()) as ops:
        cache = ops.cache(CacheSpec(HEADS, DIM, DIM), ROWS, "f32")
        queries, keys, values = map(ops.tensor, (q, k, v))
        whole = np.array(ops.host(ops.attention(queries, keys, values, cache, spec, 0, until=[ROWS] * ROWS)))
        other = ops.cache(CacheSpec(HEADS, DIM, DIM), ROWS, "f32")
        alone = np.array(ops.host(ops.attention(queries, keys, values, other, replace(spec, window=1), 0)))
        pieces = [
            np.array(
                ops.host(
                    ops.attention(
                        ops.rows(queries, start, stop), None, None, other, spec, start, until=[ROWS] * (stop - start)
                    )
                )
            )
            for start in range(0, ROWS, size)
            for stop in (min(start + size, ROWS),)
        ]
    assert np.abs(alone - v).max() <= 1e-6
    assert np.abs(whole - wanted).max() <= 1e-5
    if device == "reference":
        assert np.abs(np.concatenate(pieces) - whole).max() <= 1e-5
    else:
        assert np.array_equal(np.concatenate(pieces).view(np.uint32), whole.view(np.uint32))
