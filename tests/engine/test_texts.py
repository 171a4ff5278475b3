"""Many texts in little memory, beside the list that they stand for."""

from __future__ import annotations

import random
import sys

import pytest

from engine.texts import Texts

ODD = ["", "a", "é", "", "水車", "𝄞 and more", "\x00", "<|im_end|>", ""]


def test_texts_are_the_list_that_they_were_made_of() -> None:
    draws = random.Random(3)
    for length in (0, 1, 2, 50):
        texts = [draws.choice(ODD) for _ in range(length)]
        made = Texts.of(texts)
        assert len(made) == length
        assert list(made) == texts
        assert made == texts and texts == made and made == Texts.of(iter(texts)) and made == tuple(texts)
        for index in range(-length, length):
            assert made[index] == texts[index]
        for index in (length, -length - 1):
            with pytest.raises(IndexError):
                made[index]
        for part in (slice(1, 3), slice(None, None, -2), slice(-2, None), slice(5, 5)):
            assert made[part] == texts[part]


def test_texts_that_differ_are_not_equal() -> None:
    made = Texts.of(["ab", "c"])
    for other in (Texts.of(["a", "bc"]), ["ab"], ["ab", "d"], ["ab", 1], {"ab", "c"}, None):
        assert made != other
    assert Texts.of("ab") != "ab"
    assert "ab" in made and "b" not in made and made.index("c") == 1


def test_texts_stay_themselves_and_take_their_bytes_and_four_for_each() -> None:
    texts = [f"token {number}" for number in range(1000)]
    made = Texts.of(texts)
    assert Texts.of(made) is made
    parts = sys.getsizeof(made._data) + sys.getsizeof(made._bounds)
    assert parts < sum(len(text) for text in texts) + 4 * len(texts) * 1.2 + 200
