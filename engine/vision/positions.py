"""Where tokens and patches are: three positions for each token of a prompt with pictures, two for a patch in a tower.

Angles and weights are computed in float64 and rounded once to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

Segment = int | tuple[int, int]
"""Of a prompt: a number of text tokens, or the (rows, columns) of a picture's tokens."""


def prompt_positions(segments: Sequence[Segment], start: int = 0) -> tuple[I64, int]:
    """Time, row and column of each token, int64 [n, 3], and the position of the token after the last.

    In text all three count on from `start`. A picture's tokens share one time; their rows and columns count from it.
    What follows a picture goes on after the largest position in it. Given that next position as its `start`, a later
    turn gets what it would get in one prompt. Source: `get_rope_index` of Transformers' Qwen3-VL and Qwen3.5.
    """
    parts = [np.empty((0, 3), np.int64)]
    for segment in segments:
        if isinstance(segment, int):
            parts.append(np.repeat(np.arange(start, start + segment)[:, np.newaxis], 3, axis=1))
            start += segment
        else:
            places = patch_places(segment)
            parts.append(start + np.column_stack([np.zeros(len(places), np.int64), places]))
            start += max(segment)
    return np.concatenate(parts), start


def rotary_axes(pairs: int, sections: Sequence[int]) -> I64:
    """Which of time, row and column turns each pair of a head, interleaved: int64 [pairs] of 0, 1, 2.

    Pairs go t h w t h w … until the rows' or columns' section is used up; the rest are the time's. Source:
    `recomposition_frequencies` of Transformers' `Qwen3VLTextRotaryEmbedding`, with its `mrope_section` as `sections`.
    """
    axes = np.zeros(pairs, np.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def rotary(positions: I64, frequencies: F64) -> tuple[F32, F32]:
    """cos and sin, float32 [n, pairs], of `positions` [n, pairs] times `frequencies` [pairs] in radians.

    For a prompt the positions are `prompt_positions(…)[0][:, rotary_axes(…)]`.
    """
    angles = positions * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def patch_places(grid: tuple[int, int], block: int = 1) -> I64:
    """(row, column) of each patch, int64 [rows · columns, 2], row by row.

    With `block` the patches of `block` × `block` come together, as `Patches(merge=block, blockwise=True)` cuts them.
    """
    rows, columns = grid
    places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    blocks = places.reshape(rows // block, block, columns // block, block, 2)
    return blocks.swapaxes(1, 2).reshape(-1, 2)


def axial_rotary(places: I64, head_dim: int, theta: float) -> tuple[F32, F32]:
    """cos and sin, float32 [n, head_dim/2], for `patch_places`: the rows' quarter, then the columns'.

    Both axes turn by theta^(-2i/(head_dim/2)) for i = 0 … head_dim/4 - 1. Qwen's towers turn a whole head by it, pair
    (i, i + head_dim/2). Gemma 4's turn the first half of a head by the columns' quarter and the second by the rows'.
    Source: `Qwen3VLVisionRotaryEmbedding`, `Gemma4VisionRotaryEmbedding` of Transformers.
    """
    spatial = head_dim // 2
    frequencies = np.power(theta, -np.arange(0, spatial, 2, dtype=np.float64) / spatial)
    return rotary(np.repeat(places, len(frequencies), axis=1), np.tile(frequencies, 2))


def grid_taps(
    places: I64,
    grid: tuple[int, int],
    side: int,
    method: Literal["bilinear", "bicubic"] = "bilinear",
    align_corners: bool = True,
) -> tuple[I64, F32]:
    """How a table learned for `side` × `side` patches is read at the `places` of a `grid`.

    Rows of the table, int64 [n, taps], and their weights, float32 [n, taps]: 4 taps for "bilinear", 16 for "bicubic"
    (Keys, 1981, with a = -3/4); what lies outside the table is read at its border. `align_corners` lays the centres of
    the corners upon each other, else the outer edges meet. Qwen3-VL and Qwen3.5 are bilinear with aligned corners.
    Source: `get_vision_interpolation_indices_and_weights` of Transformers, which is `torch.nn.functional.interpolate`.
    """
    (row_taps, row_weights), (column_taps, column_weights) = (
        (taps[places[:, axis]], weights[places[:, axis]])
        for axis, (taps, weights) in enumerate(_axis_taps(size, side, method, align_corners) for size in grid)
    )
    indices = row_taps[:, :, np.newaxis] * side + column_taps[:, np.newaxis, :]
    weights = row_weights[:, :, np.newaxis] * column_weights[:, np.newaxis, :]
    return indices.reshape(len(places), -1), weights.reshape(len(places), -1).astype(np.float32)


def interpolated(table: F32, indices: I64, weights: F32) -> F32:
    """The table's rows, float32 [side², width], read by `grid_taps`: float32 [n, width].

    Products and sums in float32, tap after tap, each rounded.
    """
    total = table[indices[:, 0]] * weights[:, :1]
    for tap in range(1, indices.shape[1]):
        total += table[indices[:, tap]] * weights[:, tap, np.newaxis]
    return total


def _axis_taps(size: int, side: int, method: str, align_corners: bool) -> tuple[I64, F64]:
    """For each of `size` places on one axis: indices below `side` and their weights, [size, 2 or 4]."""
    at = np.arange(size)
    # Fractions of whole numbers, so that a place that falls on a table's row has all its weight there.
    over, under = (at * (side - 1), max(size - 1, 1)) if align_corners else ((2 * at + 1) * side - size, 2 * size)
    floor, rest = np.divmod(over, under)
    beyond = rest / under
    if method == "bilinear":
        offsets, weights = np.arange(0, 2), [1 - beyond, beyond]
    else:
        offsets = np.arange(-1, 3)
        weights = [_far(1 + beyond), _near(beyond), _near(1 - beyond), _far(2 - beyond)]
    return np.clip(floor[:, np.newaxis] + offsets, 0, side - 1), np.stack(weights, axis=1)


def _near(distance: F64) -> F64:
    """Keys' kernel at most 1 away."""
    return (1.25 * distance - 2.25) * distance * distance + 1


def _far(distance: F64) -> F64:
    """Keys' kernel between 1 and 2 away."""
    return ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
