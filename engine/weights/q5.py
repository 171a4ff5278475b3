"""Q5_0 and Q5_1: 32 weights of five bits with one float16 scale, without and with a minimum.

The fifth bits are 32 bits in the order of the weights; the lower four lie as in Q4_0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


def _codes(data: U8) -> npt.NDArray[np.int16]:
    """uint8 [n, 4 + 16], fifth bits then lower bits → codes 0 … 31 [n, 32]."""
    high = fields(data[:, :4], bits=1, run=1)
    low = fields(data[:, 4:], bits=4, run=16)
    return (low | (high << np.uint8(4))).astype(np.int16)


class Q5_0(Packed):
    """f16 d · 4 bytes of fifth bits · 16 bytes of lower bits: w = d·(code - 16)."""

    name = "Q5_0"
    block = 32
    block_bytes = 22

    def unpack(self, blocks: U8) -> Units:
        return Units(_codes(blocks[:, 2:]) - np.int16(16), d=half(blocks[:, :2]))


class Q5_1(Packed):
    """f16 d · f16 m · 4 bytes of fifth bits · 16 bytes of lower bits: w = d·code + m."""

    name = "Q5_1"
    block = 32
    block_bytes = 24

    def unpack(self, blocks: U8) -> Units:
        return Units(_codes(blocks[:, 4:]), d=half(blocks[:, :2]), dmin=half(blocks[:, 2:4]))
