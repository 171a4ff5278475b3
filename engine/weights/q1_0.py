"""Q1_0: 128 weights of one bit with one float16 scale."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class Q1_0(Packed):
    """f16 d · 16 bytes of bits, the lowest first: w = d where the bit is set, else -d."""

    name = "Q1_0"
    block = 128
    block_bytes = 18

    def unpack(self, blocks: U8) -> Units:
        bits = fields(blocks[:, 2:], bits=1, run=1).astype(np.int16)
        return Units(bits * np.int16(2) - np.int16(1), d=half(blocks[:, :2]))
