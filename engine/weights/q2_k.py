"""Q2_K: 256 weights of two bits; each 16 of them share a four-bit scale and a four-bit minimum."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class Q2_K(Packed):
    """16 bytes of scales (minima in the high halves) · 64 of codes · f16 d · f16 dmin: w = d·sc·code - dmin·m."""

    name = "Q2_K"
    block = 256
    block_bytes = 84
    width = 16

    def unpack(self, blocks: U8) -> Units:
        scales = blocks[:, :16]
        return Units(
            codes=fields(blocks[:, 16:80], bits=2, run=32).astype(np.int16),
            d=half(blocks[:, 80:82]),
            sc=(scales & np.uint8(15)).astype(np.float32),
            dmin=-half(blocks[:, 82:84]),
            m=(scales >> np.uint8(4)).astype(np.float32),
        )
