"""How fast a loaded model runs on this machine, and what it moves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.decode.forward import Forward
from engine.formats.index import TensorIndex
from engine.kernels.ops import Tensor

SHORT = 4
"""Tokens of context from which decoding at short context starts."""


@dataclass(frozen=True)
class Measurement:
    """Tokens a second over evaluations alone (forward pass and logits; no sampling, no text), and bytes.

    `decode_short_tok_s` starts at 4 tokens of context, `decode_long_tok_s` after the whole prompt.
    `peak_memory_bytes` is the most real memory the process has held; `bytes_read` came from disk since the load
    began; `bytes_per_token` of weights are passed over by one step.
    """

    threads: int
    prefill_tok_s: float
    decode_short_tok_s: float
    decode_long_tok_s: float
    peak_memory_bytes: int
    bytes_read: int
    bytes_per_token: int


@dataclass(frozen=True)
class Rates:
    """Tokens a second."""

    prefill: float
    decode_short: float
    decode_long: float


def measure_rates(forward: Forward, prompt: Sequence[int], tokens: int, *, chunk: int) -> Rates:
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
    return Rates(prefill, decode_short=_decode(forward, prompt[-1], tokens), decode_long=decode_long)


def weight_bytes_per_token(index: TensorIndex) -> int:
    """Bytes of weights that one step reads: all of them, but one row of an input table that is not the head as well."""
    total = sum(tensor.nbytes for tensor in index.tensors.values())
    table = index.tensors.get("token_embd.weight")
    if table is None or "output.weight" not in index.tensors:
        return total
    return total - table.nbytes + table.nbytes // table.shape[0]


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
