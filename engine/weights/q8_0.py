"""Q8_0: 32 signed bytes with one float16 scale."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, half


class Q8_0(Packed):
    """f16 d · 32 signed codes: w = d·code."""

    name = "Q8_0"
    block = 32
    block_bytes = 34

    def unpack(self, blocks: U8) -> Units:
        return Units(blocks[:, 2:].view(np.int8).astype(np.int16), d=half(blocks[:, :2]))
