"""Q6_K: 256 signed weights of six bits; each 16 of them share a signed eight-bit scale."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class Q6_K(Packed):
    """128 bytes of lower four bits · 64 of upper two · 16 signed scales · f16 d: w = d·sc·(code - 32)."""

    name = "Q6_K"
    block = 256
    block_bytes = 210
    width = 16

    def unpack(self, blocks: U8) -> Units:
        low = fields(blocks[:, :128], bits=4, run=64)
        high = fields(blocks[:, 128:192], bits=2, run=32)
        return Units(
            codes=(low | (high << np.uint8(4))).astype(np.int16) - np.int16(32),
            d=half(blocks[:, 208:210]),
            sc=blocks[:, 192:208].view(np.int8).astype(np.float32),
        )
