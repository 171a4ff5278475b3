"""Q3_K: 256 signed weights of three bits; each 16 of them share a signed six-bit scale."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class Q3_K(Packed):
    """32 bytes of third bits · 64 of lower bits · 12 of scales · f16 d: w = d·(sc - 32)·(code - 4).

    The scales' lower four bits fill eight bytes, their upper two bits the other four.
    """

    name = "Q3_K"
    block = 256
    block_bytes = 110
    width = 16

    def unpack(self, blocks: U8) -> Units:
        high = fields(blocks[:, :32], bits=1, run=32)
        low = fields(blocks[:, 32:96], bits=2, run=32)
        scales = fields(blocks[:, 96:104], bits=4, run=8) | (fields(blocks[:, 104:108], bits=2, run=4) << np.uint8(4))
        return Units(
            codes=(low | (high << np.uint8(2))).astype(np.int16) - np.int16(4),
            d=half(blocks[:, 108:110]),
            sc=scales.astype(np.float32) - np.float32(32),
        )
