"""TQ1_0 and TQ2_0: 256 weights of -1, 0 and +1 with one float16 scale at the end of their block."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import F32, U8, Units
from engine.weights.packed import Packed, fields, half

_PIECE = 1 << 10
"""Blocks that `row_scales` takes apart at a time."""


def _trits(data: U8, *, run: int, count: int) -> U8:
    """`count` base-3 digits of each byte, the most significant first, in runs as `fields` has them.

    A byte is ⌈v · 256 ÷ 243⌉ for the five-digit number v, a fraction of 256: `quantize_row_tq1_0_ref`, ggml-quants.c.
    Times 3ᵏ, wrapped to a byte, it is what follows the first k digits; tripled once more, it carries digit k.
    """
    powers = (np.uint8(3) ** np.arange(count, dtype=np.uint8))[:, np.newaxis]
    shifted = data.reshape(len(data), data.shape[1] // run, 1, run) * powers
    digits = (shifted.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)
    return digits.astype(np.uint8).reshape(len(data), data.shape[1] * count)


class Ternary(Packed):
    """What the two share."""

    block = 256

    def row_scales(self, rows: U8) -> F32 | None:
        """uint8 [rows, row_bytes] → float32 [rows], the one scale of each row; `None` where a row has several.

        The scale of a block whose weights are all 0 does not count: `quantize_row_tq1_0_ref` and its like of ggml
        write 0 there.
        """
        blocks = rows.reshape(-1, self.block_bytes)
        scales = half(blocks[:, -2:]).reshape(len(rows), -1)
        chosen = np.take_along_axis(scales, (scales != 0).argmax(axis=1)[:, np.newaxis], axis=1)
        other = np.flatnonzero(scales != chosen)
        for start in range(0, len(other), _PIECE):
            if self.unpack(blocks[other[start : start + _PIECE]]).codes.any():
                return None
        return np.ascontiguousarray(chosen[:, 0])


class TQ1_0(Ternary):
    """48 bytes of five digits · 4 bytes of four · f16 d: w = d·(digit - 1)."""

    name = "TQ1_0"
    block_bytes = 54

    def unpack(self, blocks: U8) -> Units:
        digits = (
            _trits(blocks[:, :32], run=32, count=5),
            _trits(blocks[:, 32:48], run=16, count=5),
            _trits(blocks[:, 48:52], run=4, count=4),
        )
        return Units(np.concatenate(digits, axis=1).astype(np.int16) - np.int16(1), d=half(blocks[:, 52:]))


class TQ2_0(Ternary):
    """64 bytes of two-bit codes · f16 d: w = d·(code - 1)."""

    name = "TQ2_0"
    block_bytes = 66

    def unpack(self, blocks: U8) -> Units:
        return Units(fields(blocks[:, :64], bits=2, run=32).astype(np.int16) - np.int16(1), d=half(blocks[:, 64:]))
