"""How fast a loaded model runs on this machine, what it moves, and how near that comes to what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.decode.cache import position_bytes
from engine.decode.forward import Forward
from engine.decode.states import state_bytes
from engine.formats.index import TensorIndex
from engine.kernels.ops import Tensor
from engine.memory.floors import measure_floors
from engine.memory.meter import Meter, peak_memory
from engine.memory.step import step_of_file
from engine.memory.stream import Counts
from engine.types import MemoryUse, Plan

SHORT = 4
"""Tokens of context from which decoding at short context starts."""


@dataclass(frozen=True)
class Measurement:
    """Tokens a second over evaluations alone (forward pass and logits; no sampling, no text), and bytes.

    `decode_short_tok_s` starts at 4 tokens of context, `decode_long_tok_s` after the whole prompt.
    `peak_memory_bytes` is the most real memory the process has held; `bytes_read` came from disk since the load
    began; `bytes_per_token` of weights are passed over by one step: of a table one row, of a mixture's experts those of
    one token. To these the two `decode_…_bytes_per_token` add the keys and values that the mean step of the run reads:
    those of every position before its own, in every layer, as if no layer had a window; those that several layers read
    count once; and the states of recurrent layers.

    `multiply_adds_per_token` of prefill: rows · columns of every matrix that a token passes, and the head's share,
    which the last token alone passes; attention and whatever else is no matrix are left out.

    A share is of what the same threads reach without doing anything else (`engine.memory.floors`):
    `read_bandwidth` bytes and `multiply_add_rate` multiply-adds a second. `None` where that was not to be measured.

    `ram` is what was granted, `memory` what the engine held of it. Of weights that stream, `read_per_token` bytes came
    from disk for a step at short context, `stall_share` of whose time was spent waiting for them; of the blocks,
    `hit_rate` were there when they were asked for, and `arena_peak` bytes at once were on their way; of a mixture's
    experts, `expert_hit_rate` were in memory when they were needed. `None` where there were none.
    """

    threads: int
    prefill_tok_s: float
    decode_short_tok_s: float
    decode_long_tok_s: float
    peak_memory_bytes: int
    bytes_read: int
    bytes_per_token: int
    decode_short_bytes_per_token: int
    decode_long_bytes_per_token: int
    multiply_adds_per_token: int
    read_bandwidth: float | None
    multiply_add_rate: float | None
    decode_short_bandwidth_share: float | None
    decode_long_bandwidth_share: float | None
    prefill_multiply_add_share: float | None
    ram: int
    read_per_token: int
    stall_share: float
    hit_rate: float | None
    expert_hit_rate: float | None
    arena_peak: int
    memory: MemoryUse


@dataclass(frozen=True)
class Rates:
    """Tokens a second, and what came from disk while decoding at short context."""

    prefill: float
    decode_short: float
    decode_long: float
    short: Counts


def measure(
    forward: Forward,
    index: TensorIndex,
    prompt: Sequence[int],
    tokens: int,
    *,
    plan: Plan,
    meter: Meter,
    bytes_read: int,
    streamed: Callable[[], Counts] = Counts,
) -> Measurement:
    """Time the model of `index` as `measure_rates` does, and hold it against the machine's floors where it has all of
    its weights in memory. `bytes_read` were read when it was loaded, those that `streamed` counts since."""
    rates = measure_rates(forward, prompt, tokens, chunk=plan.chunk, streamed=streamed)
    peak = peak_memory()  # the floors take memory of their own, of what is left of that granted
    meter.set("activations", forward.ops.nbytes)
    held, short_run = meter.use(), rates.short
    floors = None if plan.streams else measure_floors(forward.ops, meter.room())
    bandwidth, multiply_adds = (floors.read_bandwidth, floors.multiply_adds) if floors else (None, None)
    step = step_of_file(index)
    weights = sum(step.passed.values())
    short, long = (weights + _cache_bytes(forward, start, tokens) for start in (min(SHORT, len(prompt)), len(prompt)))
    work = step.multiply_adds(len(prompt))
    return Measurement(
        threads=forward.ops.threads,
        prefill_tok_s=rates.prefill,
        decode_short_tok_s=rates.decode_short,
        decode_long_tok_s=rates.decode_long,
        peak_memory_bytes=peak,
        bytes_read=bytes_read + streamed().read,
        bytes_per_token=weights,
        decode_short_bytes_per_token=short,
        decode_long_bytes_per_token=long,
        multiply_adds_per_token=work,
        read_bandwidth=bandwidth,
        multiply_add_rate=multiply_adds,
        decode_short_bandwidth_share=bandwidth and rates.decode_short * short / bandwidth,
        decode_long_bandwidth_share=bandwidth and rates.decode_long * long / bandwidth,
        prefill_multiply_add_share=multiply_adds and rates.prefill * work / multiply_adds,
        ram=plan.ram,
        read_per_token=short_run.read // tokens,
        stall_share=short_run.stalled * rates.decode_short / tokens,
        hit_rate=_share(short_run.ready, short_run.windows),
        expert_hit_rate=_share(short_run.found, short_run.found + short_run.missed),
        arena_peak=short_run.peak,
        memory=held,
    )


def measure_rates(
    forward: Forward, prompt: Sequence[int], tokens: int, *, chunk: int, streamed: Callable[[], Counts] = Counts
) -> Rates:
    """Time a prefill of `prompt`, then `tokens` steps after it, then as many after its first 4 tokens.

    Everything runs once before the clock does: the first pass pages buffers in and wakes the threads. The cache must
    have room for `len(prompt) + tokens` positions.
    """
    _prefill(forward, prompt, chunk)
    _decode(forward, prompt[-1], min(tokens, SHORT))
    started = time.perf_counter()
    _prefill(forward, prompt, chunk)
    prefill = len(prompt) / (time.perf_counter() - started)
    decode_long = _decode(forward, prompt[-1], tokens)
    _prefill(forward, prompt[:SHORT], chunk)
    before = streamed()
    decode_short = _decode(forward, prompt[-1], tokens)
    return Rates(prefill, decode_short, decode_long, streamed() - before)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _cache_bytes(forward: Forward, start: int, steps: int) -> int:
    """Bytes of keys and values before its own position, and of states, that the mean of `steps` steps from `start` on
    reads."""
    layers = forward.cache.layers
    position = sum(position_bytes([layer.spec], layer.kind) for layer in layers)
    return round(position * (start + (steps - 1) / 2)) + state_bytes([layer.spec for layer in layers])


def _prefill(forward: Forward, prompt: Sequence[int], chunk: int) -> None:
    forward.cache.truncate(0)
    hidden: Tensor = None
    for start in range(0, len(prompt), chunk):
        hidden = forward.advance(prompt[start : start + chunk])
    forward.next_logits(hidden)


def _decode(forward: Forward, token: int, n: int) -> float:
    """Greedy steps from `token` on: → tokens a second, picking the token left out."""
    spent = 0.0
    for _ in range(n):
        started = time.perf_counter()
        logits = forward.next_logits(forward.advance([token]))
        spent += time.perf_counter() - started
        token = int(logits.argmax())
    return n / spent
