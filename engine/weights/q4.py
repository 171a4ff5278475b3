"""Q4_0 and Q4_1: 32 weights of four bits with one float16 scale, without and with a minimum."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class Q4_0(Packed):
    """f16 d · 16 bytes of codes, weights 0-15 in the low halves: w = d·(code - 8)."""

    name = "Q4_0"
    block = 32
    block_bytes = 18

    def unpack(self, blocks: U8) -> Units:
        codes = fields(blocks[:, 2:], bits=4, run=16).astype(np.int16) - np.int16(8)
        return Units(codes, d=half(blocks[:, :2]))


class Q4_1(Packed):
    """f16 d · f16 m · 16 bytes of codes as in Q4_0: w = d·code + m."""

    name = "Q4_1"
    block = 32
    block_bytes = 20

    def unpack(self, blocks: U8) -> Units:
        codes = fields(blocks[:, 4:], bits=4, run=16).astype(np.int16)
        return Units(codes, d=half(blocks[:, :2]), dmin=half(blocks[:, 2:4]))
