"""The plain implementation against the frozen golden vectors, and its functions against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.kernels.plain import functions
from engine.kernels.plain.functions import philox
from tests.engine.kernels.cases import draw, golden, run, same_bits

GOLDEN = golden()


@pytest.mark.parametrize("case", GOLDEN)
def test_plain_gives_the_frozen_bits(case: str) -> None:
    inputs, expected = GOLDEN[case]
    made = run(case, inputs)
    assert made.keys() == expected.keys()
    for name, value in made.items():
        assert same_bits(np.asarray(value), expected[name]), f"{case}: {name} differs from the golden vector"


def test_every_drawn_case_is_frozen() -> None:
    assert {case for case, _ in draw(np.random.default_rng(0))} == GOLDEN.keys()


def test_same_bits_tells_one_bit_and_the_sign_of_zero_apart() -> None:
    one = np.ones(3, np.float32)
    assert not same_bits(one, np.array([1, 1, np.nextafter(np.float32(1), np.float32(2))], np.float32))
    assert not same_bits(np.zeros(1, np.float32), -np.zeros(1, np.float32))
    assert same_bits(np.array([np.nan], np.float32), -np.array([np.nan], np.float32))


@pytest.mark.parametrize(
    ("name", "judge", "low", "high", "ulp"),
    [
        ("exp", math.exp, -87.3, 88.7, 0.96),
        ("log", math.log, 1e-6, 50, 0.81),
        ("tanh", math.tanh, -10, 10, 1.27),
        ("erf", math.erf, -5, 5, 2.5),
    ],
)
def test_elementary_functions_keep_the_error_that_the_contract_states(name, judge, low, high, ulp) -> None:
    x = np.linspace(low, high, 200_001).astype(np.float32)
    exact = np.vectorize(judge)(x.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(getattr(functions, name)(x) - exact) / unit) < ulp


def test_philox_gives_the_published_answers() -> None:
    # Known answers of Random123 1.14, kat_vectors: philox4x32, 10 rounds.
    assert philox(0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
