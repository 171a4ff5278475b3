"""A text cut into pieces in many ways, and what a reader makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from engine.types import Reasoning, Text, ToolCall

Piece = Text | Reasoning | ToolCall


class Reader(Protocol):
    def push(self, text: str) -> Sequence[Piece]: ...

    def flush(self) -> Sequence[Piece]: ...


def ways(text: str) -> Iterator[list[str]]:
    """In one, character by character, in two at every position, and in several anywhere."""
    yield [text]
    yield list(text)
    for at in range(len(text) + 1):
        yield [text[:at], text[at:]]
    draws = random.Random(7)
    for _ in range(20):
        cuts = sorted(draws.choices(range(len(text) + 1), k=5))
        yield [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one kind as one."""
    whole: list[Piece] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if isinstance(piece, Text) and isinstance(last, Text):
            whole[-1] = Text(last.text + piece.text)
        elif isinstance(piece, Reasoning) and isinstance(last, Reasoning):
            whole[-1] = Reasoning(last.text + piece.text)
        else:
            whole.append(piece)
    return whole


def read(make: Callable[[], Reader], text: str) -> list[Piece]:
    """What comes out, which must be the same for every way of cutting."""
    results = []
    for pieces in ways(text):
        reader = make()
        come = [piece for part in pieces for piece in reader.push(part)] + list(reader.flush())
        assert all(piece.text for piece in come if not isinstance(piece, ToolCall)), "an empty piece"
        results.append(joined(come))
    assert all(result == results[0] for result in results)
    return results[0]
