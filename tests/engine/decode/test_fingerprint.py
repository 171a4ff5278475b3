from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from engine.decode.fingerprint import BLOCK, fingerprint
from engine.decode.forward import Forward
from engine.decode.measure import measure_rates
from engine.kernels.ops import Tensor
from engine.kernels.plain import PlainOps
from engine.types import CACHE_KINDS, Fingerprint
from tests.engine.kernels.test_native import runnable

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


@pytest.fixture(scope="module")
def starter_answers(starter_on: MakeForward, prose: list[int]) -> Callable[[str, int], Fingerprint]:
    """By cache format and length of the prompt: the fastest library's answer, read at once."""
    return cache(lambda kv, length: fingerprint(starter_on(runnable()[0], 2, kv), prose[:length], 3, chunk=length))


@pytest.mark.parametrize("length", [70, pytest.param(1040, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kv", CACHE_KINDS)
@pytest.mark.parametrize("isa", runnable())
def test_it_is_one_for_all_threads_chunks_and_instruction_sets(
    starter_on: MakeForward,
    starter_answers: Callable[[str, int], Fingerprint],
    prose: list[int],
    isa: str,
    kv: str,
    length: int,
) -> None:
    every = [(1, 1), (2, 7), (1, 64), (2, 512)]
    for threads, chunk in [(2, 64)] if isa == "portable" else every:
        made = fingerprint(starter_on(isa, threads, kv), prose[:length], 3, chunk=chunk)
        assert made == starter_answers(kv, length), f"{threads} threads, chunks of {chunk}"


def test_every_cache_format_has_its_own(starter_answers: Callable[[str, int], Fingerprint]) -> None:
    assert len({starter_answers(kv, 70).sha256 for kv in CACHE_KINDS}) == len(CACHE_KINDS)


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


class CountingOps(PlainOps):
    """Counts the tokens that were embedded."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def embed(self, table: Tensor, tokens: list[int], *, scale: float = 1.0) -> Tensor:
        self.calls.append(len(tokens))
        return super().embed(table, tokens, scale=scale)


def test_rates_are_measured_on_the_token_counts_asked_for(make_forward: MakeForward) -> None:
    ops = CountingOps()
    forward = make_forward(ops)
    rates = measure_rates(forward, PROMPT, 6, chunk=20)
    warm_up = [20, 15] + [1] * 4
    assert ops.calls == [*warm_up, 20, 15, *[1] * 6, 4, *[1] * 6]
    assert min(rates.prefill, rates.decode_short, rates.decode_long) > 0
    assert forward.cache.tokens[:4] == PROMPT[:4]
    assert len(forward.cache) == 10
