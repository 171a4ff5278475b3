from __future__ import annotations

import pytest

from engine.decode.cache import KVCache, cache_bytes
from engine.errors import BudgetError
from engine.kernels.ops import CacheSpec
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter

SPECS = (CacheSpec(2, 16, 16), CacheSpec(1, 8, 24))


def cache_of(tokens: list[int], meter: Meter | None = None) -> KVCache:
    cache = KVCache(PlainOps(), SPECS, 32, "f16", meter or Meter())
    cache.extend(tokens)
    return cache


@pytest.mark.parametrize(
    ("cached", "prompt", "kept"),
    [
        ([], [1, 2, 3], 0),
        ([1, 2, 3], [1, 2, 3, 4, 5], 3),
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 2, 3], 2),
        ([1, 2, 3, 4], [1, 9, 3, 4, 5], 1),
        ([1], [1], 0),
        ([7], [1, 2], 0),
    ],
)
def test_the_longest_shared_prefix_is_kept_but_the_last_token_is_always_computed(
    cached: list[int], prompt: list[int], kept: int
) -> None:
    cache = cache_of(cached)
    assert cache.keep_prefix(prompt) == kept
    assert cache.tokens == tuple(prompt[:kept])


def test_truncate_forgets_the_end() -> None:
    cache = cache_of([1, 2, 3, 4])
    cache.truncate(2)
    cache.extend([9])
    assert cache.tokens == (1, 2, 9)
    assert len(cache) == 3


def test_its_bytes_are_in_the_meter_until_it_is_closed() -> None:
    meter = Meter()
    cache = cache_of([], meter)
    assert meter.use().kv == cache.nbytes == sum(layer.nbytes for layer in cache.layers) > 0
    cache.close()
    cache.close()
    assert meter.use().kv == 0


def test_the_estimate_counts_keys_and_values_of_every_layer() -> None:
    assert cache_bytes(SPECS, 10, "f16") == (2 * 16 + 2 * 16 + 8 + 24) * 10 * 2
    assert cache_bytes(SPECS, 10, "f32") == 2 * cache_bytes(SPECS, 10, "f16")


def test_a_context_beyond_the_free_memory_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(BudgetError, match=r"A context of \d+ tokens needs .* TB of memory, but .* is free: .* f16"):
        KVCache(PlainOps(), SPECS, 1 << 45, "f32", Meter())
