from __future__ import annotations

import pytest

from engine import weights
from engine.memory import speeds
from engine.memory.figures import Speed, Speeds
from engine.memory.speeds import measure_speeds


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "SECONDS", 0.001)
    monkeypatch.setattr(speeds, "BUFFER", speeds.LEAST)


def test_every_encoding_has_a_speed() -> None:
    told = measure_speeds(weights.ENCODINGS, 2)
    assert told is not None and set(told.encodings) == set(weights.ENCODINGS) and told.walk >= 0
    assert all(speed.passed > 0 and speed.multiply_adds > 0 for speed in told.encodings.values())


def test_where_memory_is_short_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "free_memory", lambda: 4 * speeds.LEAST - 1)
    assert measure_speeds(["Q8_0"], 1) is None


def test_what_was_not_measured_is_as_fast_as_the_slowest() -> None:
    slow = Speed(1.0, 9.0)
    told = Speeds({"F16": Speed(3.0, 2.0), "Q4_K": slow}, 0.0)
    assert told.of("Q4_0") == slow and told.of("F16").passed == 3.0 and told.slowest == 1.0
