"""A prompt: tokens, and pictures among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.vision.patches import Picture
from engine.vision.positions import Segment


@dataclass(frozen=True, eq=False)
class Placed:
    """A picture whose first row is the prompt's row `start`."""

    start: int
    picture: Picture

    @property
    def stop(self) -> int:
        return self.start + self.picture.tokens

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens, each of which stands for a square of patches."""
        rows, columns = self.picture.grid
        side = math.isqrt(rows * columns // self.picture.tokens)
        return rows // side, columns // side


@dataclass(frozen=True, eq=False)
class Prompt:
    """`tokens` name every row: a token by its id, a row of a picture by a negative number of its own, which equal
    pictures share, so that what is cached can be compared. `pictures` lie in ascending order."""

    tokens: tuple[int, ...]
    pictures: tuple[Placed, ...] = ()

    @staticmethod
    def of(ids: Sequence[int | Picture]) -> Prompt:
        """From token ids with pictures between them."""
        tokens: list[int] = []
        placed: list[Placed] = []
        for item in ids:
            if isinstance(item, int):
                tokens.append(item)
                continue
            first = int.from_bytes(item.digest) << 32
            placed.append(Placed(len(tokens), item))
            tokens += (-1 - (first | row) for row in range(item.tokens))
        return Prompt(tuple(tokens), tuple(placed))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def ids(self) -> list[int]:
        """The tokens alone."""
        return [token for token in self.tokens if token >= 0]

    def segments(self) -> list[Segment]:
        """Text by its length, pictures by the grids of their tokens, in order."""
        made: list[Segment] = []
        done = 0
        for placed in self.pictures:
            made += (placed.start - done, placed.grid)
            done = placed.stop
        return [*made, len(self.tokens) - done]

    def within(self, start: int, stop: int) -> list[Placed]:
        """The pictures that begin in rows `start … stop - 1`."""
        return [placed for placed in self.pictures if start <= placed.start < stop]

    def whole(self, length: int) -> int:
        """`length` rows, or fewer where that would cut a picture: all rows of one are computed together."""
        for placed in self.pictures:
            if placed.start < length < placed.stop:
                return placed.start
        return length

    def piece(self, start: int, size: int) -> tuple[int, ...]:
        """Up to `size` tokens from `start` on, as far as the next picture. A picture is a piece of its own, of any
        size. None at the end."""
        stop = min(start + size, len(self.tokens))
        for placed in self.pictures:
            if placed.start == start:
                stop = placed.stop
            elif start < placed.start < stop:
                stop = placed.start
        return self.tokens[start:stop]

    def looks(self, start: int) -> bool:
        """Whether a picture begins at row `start`."""
        return any(placed.start == start for placed in self.pictures)
