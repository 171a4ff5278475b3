"""What is said of a plan, and the table of what lies where."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.placement import (
    KINDS,
    beside,
    context_less,
    even_routing,
    granted_less,
    parts,
    sentence,
    sentences,
    speed,
    table,
)
from engine.memory import planner
from engine.types import Placed
from tests.plans import RESIDENT, STREAMED


def test_a_model_that_fits_is_said_to_fit() -> None:
    assert sentence(RESIDENT) == "Fits into memory; about 104 tokens/s."
    assert sentence(replace(RESIDENT, tok_s=None)) == "Fits into memory."


def test_a_model_that_streams_is_told_with_its_bytes_and_its_speed() -> None:
    assert sentence(STREAMED) == "Streams 410.0 MB of 2.7 GB a token from disk; about 2.6 tokens/s."
    assert sentence(replace(STREAMED, tok_s=None)) == "Streams 410.0 MB of 2.7 GB a token from disk."


@pytest.mark.parametrize(
    ("tok_s", "told"),
    [
        (104.3, "about 104 tokens/s"),
        (9.96, "about 10 tokens/s"),
        (9.94, "about 9.9 tokens/s"),
        (1.0, "about 1 token/s"),
        (0.25, "about 0.25 tokens/s"),
        (0.02, "one token in about 50 s"),
    ],
)
def test_a_speed_is_told_as_exactly_as_it_is_known(tok_s: float, told: str) -> None:
    assert speed(tok_s) == told


def test_what_there_is_less_of_than_was_wanted_is_told() -> None:
    assert sentences(RESIDENT) == (sentence(RESIDENT),) and sentences(STREAMED) == (
        sentence(STREAMED),
        even_routing(STREAMED),
    )
    less = replace(STREAMED, granted=30 * 10**9, ram=21_300_000_000)
    assert granted_less(less) == "30.0 GB were granted, 21.3 GB are free: the plan uses that."
    assert granted_less(replace(less, granted=less.ram + 1)) == "", "as far as it is told there is no difference"
    short = replace(RESIDENT, context=2048)
    assert context_less(short) == "Memory is short: the context is 2,048 tokens instead of 8,192."
    both = replace(less, context=2048)
    assert sentences(both) == (sentence(both), even_routing(both), granted_less(both), context_less(both))


def test_every_word_is_one_that_can_be_translated() -> None:
    def shout(text: str) -> str:
        return re.sub(r"[^{}]+(?![^{]*})", lambda words: words[0].upper(), text)

    short = replace(STREAMED, granted=30 * 10**9, context=2048)
    for plan in (RESIDENT, short, replace(short, tok_s=None), replace(RESIDENT, tok_s=0.02), replace(short, tok_s=1)):
        told = [*sentences(plan, shout), *(what for what, _ in (*parts(plan, shout), *beside(plan, shout)))]
        told += [what for what, _ in table(plan, shout).rows]
        for text in told:
            assert re.sub(r"\d (kB|bytes)", "", text).isupper(), text


def test_the_table_has_the_tiers_that_hold_something_and_a_total() -> None:
    told = table(STREAMED)
    assert told.tiers == ("VRAM", "RAM", "disk")
    assert told.cells == (
        ("input embedding", "–", "–", "622.0 MB"),
        ("attention", "1.9 GB", "350.0 MB", "–"),
        ("feed-forward", "–", "1.1 GB", "–"),
        ("experts", "–", "–", "13.4 GB"),
        ("output", "–", "–", "622.0 MB"),
        ("total", "1.9 GB", "1.4 GB", "14.6 GB"),
    )
    assert table(RESIDENT).tiers == ("RAM",)


def test_a_kind_that_is_placed_in_pieces_is_one_row() -> None:
    pieces = (Placed("attention", "RAM", 3), Placed("attention", "disk", 5), Placed("attention", "RAM", 4))
    assert table(replace(RESIDENT, placed=pieces)).rows == (("attention", (7, 5)), ("total", (7, 5)))


def test_kinds_are_those_of_the_planner_and_stand_as_a_token_passes_them() -> None:
    assert tuple(KINDS) == planner.KINDS
    placed = tuple(Placed(kind, "RAM", 1) for kind in reversed(KINDS))
    assert [what for what, _ in table(replace(RESIDENT, placed=placed)).rows] == [*KINDS.values(), "total"]


def test_what_there_is_none_of_is_not_told_of() -> None:
    assert [what for what, _ in beside(RESIDENT)] == ["beside it, for the program itself", "left to other programs"]
    assert dict(beside(STREAMED))["graphics memory granted"] == STREAMED.vram


def test_the_parts_of_the_memory_add_up_to_what_is_granted() -> None:
    for plan in (RESIDENT, STREAMED):
        assert sum(nbytes for _, nbytes in parts(plan)) == plan.ram
        assert all(nbytes > 0 for _, nbytes in parts(plan))
    assert dict(parts(STREAMED))["experts used lately"] == STREAMED.experts
    assert "experts used lately" not in dict(parts(RESIDENT))
