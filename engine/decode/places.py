"""Places of rows in time, height and width, for models that turn the rows of a picture by where they lie in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.decode.prompt import Placed

Places = npt.NDArray[np.int64]


def places(pictures: Sequence[Placed], length: int) -> Places:
    """int [length, 3] for rows 0 … length - 1, of which `pictures` are some and the others text.

    Text goes on by one on all axes. A picture's row at (r, c) of its grid of tokens has its first place in time, and
    that plus r and c in height and width; text goes on after the largest (Wang et al., Qwen2-VL, arXiv:2409.12191,
    section 2.1).
    """
    made = np.empty((length, 3), np.int64)
    row = place = 0
    for placed in pictures:
        made[row : placed.start] = (place + np.arange(placed.start - row))[:, None]
        place += placed.start - row
        rows, columns = token_grid(placed)
        lies = np.stack(np.broadcast_arrays(0, np.arange(rows)[:, None], np.arange(columns)), axis=-1)
        made[placed.start : placed.stop] = place + lies.reshape(-1, 3)
        row, place = placed.stop, place + max(rows, columns)
    made[row:] = (place + np.arange(length - row))[:, None]
    return made


def token_grid(placed: Placed) -> tuple[int, int]:
    """Rows and columns of tokens, each of which stands for a square of patches."""
    (rows, columns), tokens = placed.picture.grid, placed.picture.tokens
    side = math.isqrt(rows * columns // tokens)
    return rows // side, columns // side
