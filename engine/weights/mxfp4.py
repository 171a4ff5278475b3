"""MXFP4: 32 weights of four bits (E2M1) with one power of two (E8M0).

OCP Microscaling Formats (MX) Specification 1.0. The levels are doubled, which makes them whole numbers, and the scale
is halved. The specification's NaN scale (255) is read as 2¹²⁸, as ggml reads it.
"""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import F32, U8, Units
from engine.weights.packed import Packed, fields

_DOUBLED_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _halved_scale(exponents: U8) -> F32:
    """2^(e - 128) as float32, subnormal for e = 0 and 1."""
    e = exponents.astype(np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << np.minimum(e, 1), (e - np.uint32(1)) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32)


class MXFP4(Packed):
    """One byte of exponent e · 16 bytes of codes, weights 0-15 in the low halves: w = 2^(e - 128)·(2·level)."""

    name = "MXFP4"
    block = 32
    block_bytes = 17

    def unpack(self, blocks: U8) -> Units:
        codes = np.array(_DOUBLED_LEVELS, np.int16)[fields(blocks[:, 1:], bits=4, run=16)]
        return Units(codes, d=_halved_scale(blocks[:, :1]))
