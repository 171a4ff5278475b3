from __future__ import annotations

from contextlib import closing

import pytest

from engine.decode.cache import KVCache, cache_bytes, position_bytes
from engine.decode.prompt import Prompt
from engine.errors import BudgetError, SettingsError
from engine.kernels.native import NativeOps
from engine.kernels.ops import CacheSpec
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.memory.meter import Meter
from engine.types import CACHE_KINDS
from tests.engine.devices import DEVICES

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
    assert cache.keep_prefix(Prompt.of(prompt)) == kept
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
    assert position_bytes(SPECS, "f16") == (2 * 16 + 2 * 16 + 8 + 24) * 2
    assert position_bytes(SPECS, "f32") == 2 * position_bytes(SPECS, "f16")
    assert position_bytes([CacheSpec(3, 64, 96)], "q8_0") == 3 * (64 + 96) // 32 * 34


def test_the_estimate_counts_whole_chunks_of_64_positions() -> None:
    for capacity, held in ((1, 64), (64, 64), (65, 128)):
        assert cache_bytes(SPECS, capacity, "f16") == held * position_bytes(SPECS, "f16")


@pytest.mark.parametrize("kind", CACHE_KINDS)
def test_a_device_takes_the_bytes_that_are_estimated(kind: str) -> None:
    spec = CacheSpec(3, 64, 96)
    with closing(NativeOps(threads=1)) as ops:
        for device in (ops, ReferenceOps()):
            assert device.cache(spec, 64, kind).nbytes == cache_bytes([spec], 64, kind)
        assert ops.cache(spec, 65, kind).nbytes == cache_bytes([spec], 65, kind)


@pytest.mark.parametrize("device", DEVICES)
def test_widths_that_are_no_whole_blocks_are_refused_for_q8_0_with_the_cache_to_use(device: str) -> None:
    with (
        closing(DEVICES[device]()) as ops,
        pytest.raises(SettingsError, match=r"q8_0 .* 32, .* 32 and 40 .* f16 cache"),
    ):
        KVCache(ops, [CacheSpec(2, 64, 64), CacheSpec(2, 32, 40)], 8, "q8_0", Meter())


@pytest.mark.parametrize("device", DEVICES)
def test_an_unknown_kind_is_refused_with_the_known_ones(device: str) -> None:
    with closing(DEVICES[device]()) as ops, pytest.raises(SettingsError, match=r"'q3' .*: f16, f32, q8_0\."):
        ops.cache(CacheSpec(1, 32, 32), 6, "q3")


def test_a_context_beyond_the_free_memory_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(BudgetError, match=r"A context of \d+ tokens needs .* PB of memory, but .* is free: .* f16"):
        KVCache(PlainOps(), SPECS, 1 << 45, "f32", Meter())


@pytest.mark.parametrize(
    ("kind", "width", "advice"),
    [
        ("f32", 32, " or the f16 cache,"),
        ("f16", 32, " or the q8_0 cache,"),
        ("f16", 40, ","),
        ("q8_0", 32, ","),
    ],
)
def test_a_refused_context_comes_with_the_smaller_cache_that_this_model_can_use(
    kind: str, width: int, advice: str
) -> None:
    with pytest.raises(BudgetError, match=f"choose a smaller context{advice} or close"):
        KVCache(PlainOps(), [CacheSpec(1, width, 32)], 1 << 45, kind, Meter())
