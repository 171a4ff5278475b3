"""Special tokens in texts: found where they stand, and not found where somebody else wrote them."""

from __future__ import annotations

import random
import re

import pytest

from engine.text.special import SpecialTokens

IDS = {"<|a|>": 1, "<|a": 2, "|>": 3, "<": 4, "é": 5, "aa": 6}
MARK = "\U0010ffff"


@pytest.fixture
def special() -> SpecialTokens:
    return SpecialTokens(IDS)


def test_the_leftmost_is_found_first_and_of_those_the_longest(special: SpecialTokens) -> None:
    assert list(special.split("x<|a|>y<|a|<é|>aaa")) == ["x", 1, "y", 2, "|", 4, 5, 3, 6, "a"]
    assert list(special.split("")) == []
    assert list(SpecialTokens({}).split("<|a|>")) == ["<|a|>"]


def test_the_split_is_that_of_an_alternation_of_the_longest_first(special: SpecialTokens) -> None:
    judge = re.compile("(" + "|".join(map(re.escape, sorted(IDS, key=len, reverse=True))) + ")")
    draws = random.Random(1)
    for _ in range(500):
        text = "".join(draws.choices(["<", "|", "a", ">", "é", "x"], k=draws.randrange(20)))
        expected = [IDS.get(piece, piece) for piece in judge.split(text) if piece]
        assert list(special.split(text)) == expected


def test_a_guarded_text_has_no_special_tokens_and_loses_nothing(special: SpecialTokens) -> None:
    draws = random.Random(2)
    for _ in range(500):
        text = "".join(draws.choices(["<", "|", "a", ">", "é", "x", "<|a|>"], k=draws.randrange(20)))
        guarded = special.guard(text, MARK)
        assert "".join(map(str, special.split(guarded, MARK))) == text
        assert all(isinstance(piece, str) for piece in special.split(guarded, MARK))


def test_a_text_without_special_tokens_is_not_changed(special: SpecialTokens) -> None:
    assert special.guard("plain | text > a", MARK) == "plain | text > a"


def test_special_tokens_around_a_guarded_text_are_found(special: SpecialTokens) -> None:
    text = "<|a|>" + special.guard("<|a|>", MARK) + "<|a|>"
    assert list(special.split(text, MARK)) == [1, "<|a|>", 1]
