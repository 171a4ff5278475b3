"""Prompts with pictures: what names their rows, and how they are cut into passes."""

from __future__ import annotations

import numpy as np

from engine.decode.prompt import Prompt
from engine.vision.patches import Picture


def picture(digest: bytes, tokens: int = 4) -> Picture:
    return Picture(np.zeros((tokens, 3), np.float32), (2, tokens // 2), tokens, digest)


ONE, OTHER = picture(b"\x07" * 32), picture(b"\x07" * 31 + b"\x08")


def pieces(prompt: Prompt, size: int) -> list[tuple[int, ...]]:
    made: list[tuple[int, ...]] = []
    at = 0
    while piece := prompt.piece(at, size):
        made.append(piece)
        at += len(piece)
    return made


def test_rows_have_the_same_names_in_equal_pictures_alone() -> None:
    one, other = Prompt.of([5, ONE, 6]), Prompt.of([5, OTHER, 6])
    assert one.tokens == Prompt.of([5, picture(ONE.digest), 6]).tokens
    assert len({*one.tokens, *other.tokens}) == 2 + 4 + 4
    assert all(token < 0 for token in one.tokens[1:5] + other.tokens[1:5])
    assert one.ids == [5, 6]


def test_a_picture_is_a_piece_of_its_own_wherever_it_stands() -> None:
    prompt = Prompt.of([ONE, OTHER, 1, 2, 3, ONE])
    assert [len(piece) for piece in pieces(prompt, 2)] == [4, 4, 2, 1, 4]
    assert [len(piece) for piece in pieces(prompt, 100)] == [4, 4, 3, 4]
    assert sum(pieces(prompt, 3), ()) == prompt.tokens


def test_no_length_cuts_a_picture() -> None:
    prompt = Prompt.of([ONE, OTHER, 1, ONE])
    assert [prompt.whole(length) for length in range(14)] == [0, 0, 0, 0, 4, 4, 4, 4, 8, 9, 9, 9, 9, 13]
