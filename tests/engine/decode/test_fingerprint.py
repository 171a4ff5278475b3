from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from engine.decode.fingerprint import BLOCK, fingerprint
from engine.decode.forward import Forward
from engine.decode.measure import measure_rates
from engine.errors import NumericsError
from engine.kernels.ops import Tensor
from engine.kernels.plain import PlainOps

PROMPT = tuple(b"A mill by the river turns and turns")
MakeForward = Callable[..., Forward]


def test_it_hashes_the_logits_of_every_position_in_order(make_forward: MakeForward) -> None:
    forward = make_forward()
    rows, tokens = [], list(PROMPT)
    for position in range(len(PROMPT) + 3):
        rows.append(forward.next_logits(forward.advance([tokens[position]])).copy())
        if position >= len(PROMPT) - 1:
            tokens.append(int(rows[-1].argmax()))
    expected = hashlib.sha256(np.stack(rows).astype("<f4").tobytes()).hexdigest()
    result = fingerprint(make_forward(), PROMPT, 4, chunk=512)
    assert result.sha256 == expected
    assert result.tokens == tuple(tokens[len(PROMPT) :])


@pytest.mark.parametrize("chunk", [1, 7, BLOCK, BLOCK + 1])
def test_the_chunk_never_changes_it(make_forward: MakeForward, chunk: int) -> None:
    assert fingerprint(make_forward(), PROMPT, 3, chunk=chunk) == fingerprint(make_forward(), PROMPT, 3, chunk=512)


def test_the_cache_format_does(make_forward: MakeForward) -> None:
    a, b = (fingerprint(make_forward(kv=kv), PROMPT, 3, chunk=512) for kv in ("f16", "f32"))
    assert a.sha256 != b.sha256


class WideOps(PlainOps):
    """Remembers the most rows of logits that were on the host at once."""

    most = 0

    def host(self, x: Tensor) -> np.ndarray:
        self.most = max(self.most, len(x))
        return super().host(x)


def test_logits_are_never_held_for_more_than_one_block(make_forward: MakeForward) -> None:
    ops = WideOps()
    fingerprint(make_forward(ops), PROMPT, 2, chunk=512)
    assert ops.most == BLOCK


class BrokenOps(PlainOps):
    def host(self, x: Tensor) -> np.ndarray:
        logits = super().host(x).copy()
        logits[-1, 3] = np.nan
        return logits


def test_logits_that_are_not_finite_are_refused_with_their_position(make_forward: MakeForward) -> None:
    with pytest.raises(NumericsError, match="position 7:"):
        fingerprint(make_forward(BrokenOps()), PROMPT, 2, chunk=7)


class CountingOps(PlainOps):
    """Counts the tokens that were embedded."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def embed(self, table: Tensor, tokens: list[int]) -> Tensor:
        self.calls.append(len(tokens))
        return super().embed(table, tokens)


def test_rates_are_measured_on_the_token_counts_asked_for(make_forward: MakeForward) -> None:
    ops = CountingOps()
    forward = make_forward(ops)
    rates = measure_rates(forward, PROMPT, 6, chunk=20)
    warm_up = [20, 15] + [1] * 4
    assert ops.calls == [*warm_up, 20, 15, *[1] * 6, 4, *[1] * 6]
    assert min(rates.prefill, rates.decode_short, rates.decode_long) > 0
    assert forward.cache.tokens[:4] == PROMPT[:4]
    assert len(forward.cache) == 10
