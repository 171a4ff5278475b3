"""Stop strings over a text in pieces."""

from __future__ import annotations

import random

import pytest

from engine.errors import SettingsError
from engine.text import StopStrings


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    stream = StopStrings(stops)
    shown = [stream.push(piece) for piece in pieces]
    return [*shown, stream.flush()], stream.matched


def test_a_possible_beginning_is_held_back_until_it_is_decided() -> None:
    assert run(["STOP"], ["a S", "T", "OX", "b"]) == (["a ", "", "STOX", "b", ""], None)
    assert run(["STOP"], ["a S", "TO"]) == (["a ", "", "STO"], None)


def test_the_text_is_cut_where_the_stop_string_begins_and_nothing_follows() -> None:
    assert run(["STOP"], ["a ST", "OP b", "c"]) == (["a ", "", "", ""], "STOP")


def test_without_stop_strings_everything_goes_through() -> None:
    assert run([], ["a", "", "b"]) == (["a", "", "b", ""], None)


def test_an_overlapping_beginning_is_not_lost() -> None:
    assert run(["aab"], ["a", "a", "a", "b"]) == (["", "", "a", "", ""], "aab")


@pytest.mark.parametrize(
    ("stops", "text", "shown", "matched"),
    [
        (["abcd", "bc"], "xabcd", "xa", "bc"),
        (["bc", "abc"], "xabc", "x", "abc"),
        (["\n\n", "\nUser:"], "hi\nUser: x\n\n", "hi", "\nUser:"),
        (["🙂"], "a🙂b", "a", "🙂"),
    ],
)
def test_the_first_to_be_complete_counts_and_of_two_at_once_the_longer(
    stops: list[str], text: str, shown: str, matched: str
) -> None:
    for pieces in ([text], list(text)):
        come, found = run(stops, pieces)
        assert ("".join(come), found) == (shown, matched)


def test_the_division_into_pieces_makes_no_difference() -> None:
    draws = random.Random(5)
    for _ in range(500):
        stops = ["".join(draws.choices("abc", k=draws.randrange(1, 5))) for _ in range(draws.randrange(4))]
        text = "".join(draws.choices("abc", k=20))
        ends = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
        expected = (text[: min(ends)[1]], min(ends)[2]) if ends else (text, None)
        cuts = sorted(draws.choices(range(21), k=4))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, 20], strict=True)]
        come, matched = run(stops, pieces)
        assert ("".join(come), matched) == expected


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(SettingsError, match="empty"):
        StopStrings(["a", ""])
