from __future__ import annotations

import numpy as np
import pytest

from engine.decode.sampler import Sampler
from engine.kernels.plain import uniform
from engine.types import Settings

GREEDY = Settings(temperature=0)


def logits_of(seed: int, vocabulary: int = 3000) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, vocabulary).astype(np.float32)


def sample(
    logits: np.ndarray, settings: Settings, *, seed: int = 1, position: int = 0, seen: tuple[int, ...] = ()
) -> int:
    sampler = Sampler(settings, seed, logits.size)
    sampler.see(seen)
    return sampler.sample(logits, position)


def oracle(logits: np.ndarray, settings: Settings, seen: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Transformers' filters, then every token's share in float64: → ids by falling share, and the shares added up."""
    import torch
    from transformers import (
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    context = torch.tensor([seen])
    scores = torch.tensor(logits)[None]
    if settings.repetition_penalty != 1:
        scores = RepetitionPenaltyLogitsProcessor(settings.repetition_penalty)(context, scores)
    scores = TemperatureLogitsWarper(float(settings.temperature))(context, scores)
    if settings.top_k:
        scores = TopKLogitsWarper(settings.top_k)(context, scores)
    if settings.top_p < 1:
        scores = TopPLogitsWarper(settings.top_p)(context, scores)
    if settings.min_p:
        scores = MinPLogitsWarper(settings.min_p)(context, scores)
    shares = scores[0].double().softmax(0).numpy()
    order = np.argsort(-shares, kind="stable")
    return order, np.cumsum(shares[order])


@pytest.mark.parametrize(
    "settings",
    [
        Settings(temperature=1, top_k=0, top_p=1),
        Settings(temperature=0.3, top_k=0, top_p=1),
        Settings(temperature=1.7, top_k=12, top_p=1),
        Settings(temperature=1.2, top_k=0, top_p=0.8),
        Settings(temperature=1.5, top_k=0, top_p=1, min_p=0.1),
        Settings(temperature=1, top_k=0, top_p=1, repetition_penalty=1.8),
        Settings(temperature=1.4, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.1),
        Settings(temperature=3, top_k=200, top_p=1),
        Settings(temperature=1, top_k=1, top_p=1),
        Settings(temperature=1, top_k=10_000, top_p=1),
    ],
)
def test_draws_are_those_of_the_transformers_filters(settings: Settings) -> None:
    seen = tuple(range(0, 3000, 3))
    compared = 0
    for draw in range(60):
        logits = logits_of(draw)
        order, mass = oracle(logits, settings, seen)
        share = uniform(7, draw)
        if np.abs(mass - share).min() < 1e-5:
            continue
        compared += 1
        expected = order[np.searchsorted(mass, share, side="right")]
        assert sample(logits, settings, seed=7, position=draw, seen=seen) == expected
    assert compared > 50


def test_greedy_takes_the_lower_of_two_equal_ids() -> None:
    logits = logits_of(0)
    logits[[41, 17, 2333]] = 50
    assert sample(logits, GREEDY) == 17


def test_greedy_minds_the_repetition_penalty() -> None:
    logits = np.array([-1, -4, -1.5], np.float32)
    assert sample(logits, GREEDY, seen=(0,)) == 0
    assert sample(logits, Settings(temperature=0, repetition_penalty=2), seen=(0,)) == 2


def test_equal_likelihoods_are_drawn_in_the_order_of_their_ids() -> None:
    logits = np.zeros(1000, np.float32)
    settings = Settings(temperature=1, top_k=0, top_p=1)
    for position in range(50):
        assert sample(logits, settings, seed=3, position=position) == int(uniform(3, position) * 1000)


def test_top_k_cuts_equal_likelihoods_at_the_higher_ids() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[17, 900]] = 1
    drawn = {sample(logits, Settings(temperature=1, top_k=5, top_p=1), position=p) for p in range(100)}
    assert drawn == {17, 900, 0, 1, 2}


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    settings = Settings(temperature=1.5, top_k=0, top_p=1)
    logits = logits_of(1)
    sampler = Sampler(settings, 5, logits.size)
    forwards = [sampler.sample(logits, position) for position in range(40)]
    backwards = [sampler.sample(logits, position) for position in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert forwards != [sample(logits, settings, seed=6, position=position) for position in range(40)]


def test_the_likeliest_token_stays_when_the_filters_leave_nothing_else() -> None:
    logits = logits_of(2)
    best = int(logits.argmax())
    for settings in (
        Settings(temperature=1, top_p=1e-9),
        Settings(temperature=1, min_p=1),
        Settings(temperature=1e-30),
    ):
        assert {sample(logits, settings, position=p) for p in range(30)} == {best}


def test_logits_are_left_as_they_were() -> None:
    logits = logits_of(4)
    before = logits.copy()
    sample(logits, Settings(repetition_penalty=1.5), seen=(1, 2, 3))
    assert logits.tobytes() == before.tobytes()
