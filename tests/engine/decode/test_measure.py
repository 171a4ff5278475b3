"""What a measurement counts, held against counts of the tiny model by hand, and against made floors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.decode import measure as module
from engine.decode.forward import Forward
from engine.decode.measure import Measurement, measure
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.memory.floors import Floors
from engine.memory.meter import Meter
from tests.plans import RESIDENT

MakeForward = Callable[..., Forward]

PROMPT = tuple(range(3, 23))
TOKENS = 6


def measured(
    forward: Forward, index: TensorIndex, prompt: tuple[int, ...], tokens: int, *, chunk: int, bytes_read: int = 0
) -> Measurement:
    """With all weights in memory."""
    plan = replace(RESIDENT, chunk=chunk)
    return measure(forward, index, prompt, tokens, plan=plan, meter=Meter(), bytes_read=bytes_read)


def test_the_shares_are_counted_work_over_the_floors(
    make_forward: MakeForward, index: TensorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure_floors", lambda ops, room: Floors(2e9, 3e10))
    told = measured(make_forward(), index, PROMPT, TOKENS, chunk=7, bytes_read=12)
    assert (told.read_bandwidth, told.multiply_add_rate, told.bytes_read) == (2e9, 3e10, 12)
    layers, kv_heads, head_dim, f16 = 2, 2, 16, 2
    position = layers * kv_heads * (head_dim + head_dim) * f16
    # Six steps read 4, 5, … 9 positions before their own, and 20, 21, … 25.
    assert told.decode_short_bytes_per_token - told.bytes_per_token == position * 13 // 2
    assert told.decode_long_bytes_per_token - told.bytes_per_token == position * 45 // 2
    blocks = sum(
        info.shape[0] * info.shape[1]
        for name, info in index.tensors.items()
        if len(info.shape) == 2 and name.startswith("blk.")
    )
    assert told.multiply_adds_per_token == blocks + 260 * 64 // len(PROMPT)
    assert told.decode_short_bandwidth_share == pytest.approx(
        told.decode_short_tok_s * told.decode_short_bytes_per_token / 2e9
    )
    assert told.decode_long_bandwidth_share == pytest.approx(
        told.decode_long_tok_s * told.decode_long_bytes_per_token / 2e9
    )
    assert told.prefill_multiply_add_share == pytest.approx(told.prefill_tok_s * told.multiply_adds_per_token / 3e10)


def test_an_f32_cache_is_twice_the_bytes(make_forward: MakeForward, index: TensorIndex) -> None:
    half, whole = (
        told.decode_long_bytes_per_token - told.bytes_per_token
        for told in (
            measured(make_forward(kv=kv), index, PROMPT, TOKENS, chunk=20, bytes_read=0) for kv in ("f16", "f32")
        )
    )
    assert whole == 2 * half > 0


def test_without_native_kernels_there_are_no_shares(make_forward: MakeForward, index: TensorIndex) -> None:
    told = measured(make_forward(), index, PROMPT, 2, chunk=20, bytes_read=0)
    assert told.prefill_tok_s > 0
    assert (told.read_bandwidth, told.multiply_add_rate) == (None, None)
    assert (told.decode_short_bandwidth_share, told.decode_long_bandwidth_share) == (None, None)
    assert told.prefill_multiply_add_share is None


def test_native_kernels_are_held_against_this_machine(make_forward: MakeForward, index: TensorIndex) -> None:
    ops = NativeOps(2)
    told = measured(make_forward(ops), index, PROMPT, 2, chunk=20, bytes_read=0)
    ops.close()
    assert told.threads == 2
    assert told.read_bandwidth and told.multiply_add_rate
    assert told.decode_short_bandwidth_share and told.decode_long_bandwidth_share and told.prefill_multiply_add_share


def test_a_prompt_shorter_than_the_short_context_is_measured_too(make_forward: MakeForward, index: TensorIndex) -> None:
    told = measured(make_forward(), index, PROMPT[:1], 3, chunk=20, bytes_read=0)
    assert told.decode_short_bytes_per_token == told.decode_long_bytes_per_token > told.bytes_per_token
