"""Where the sliders can stand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.budgets.stops import context_stops, memory_stops, nearest


@pytest.mark.parametrize(
    ("least", "most", "given"),
    [(24_615_936, 22_100_000_000, 19_873_123_456), (411_008, 16_000_000_000, 9), (5, 40, 20), (7, 8, 8)],
)
def test_memory_goes_from_exactly_the_least_to_exactly_the_most_and_never_back(
    least: int, most: int, given: int
) -> None:
    stops = memory_stops(least, most, given)
    assert (stops[0], stops[-1]) == (least, most)
    assert all(before < after for before, after in pairwise(stops))
    assert (given in stops) == (least <= given <= most)


def test_a_step_of_memory_is_small_where_there_is_little_of_it() -> None:
    stops = memory_stops(24_615_936, 22_100_000_000, 19_873_123_456)
    assert all(after / before < 1.15 for before, after in pairwise(stops))
    assert 2_000_000_000 in stops, "round numbers stand between the ends"


def test_where_there_is_nothing_to_choose_there_is_one_place() -> None:
    assert memory_stops(9_000, 8_000, 7_000) == (8_000,)


def test_context_has_powers_and_thousands_up_to_the_models_own() -> None:
    stops = context_stops(40_960, 8192)
    assert {256, 1000, 1024, 8000, 8192, 32_768, 40_000} <= set(stops)
    assert stops[-1] == 40_960 and list(stops) == sorted(set(stops))
    assert context_stops(256, 256) == (32, 64, 128, 256)
    assert context_stops(1, 1) == (1,)
    assert 8192 in context_stops(None, 8192)


def test_the_nearest_stop_is_found() -> None:
    stops = (10, 20, 40)
    assert [stops[nearest(stops, value)] for value in (0, 14, 16, 20, 29, 31, 99)] == [10, 10, 20, 20, 20, 40, 40]
