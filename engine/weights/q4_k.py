"""Q4_K and Q5_K: 256 weights of four or five bits; each 32 of them share a six-bit scale and a six-bit minimum."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import F32, U8, Units
from engine.weights.packed import Packed, fields, half


def _scales_and_minima(data: U8) -> tuple[F32, F32]:
    """uint8 [n, 12] → scales and minima, each [n, 8], values 0 … 63.

    Bytes 0-3 hold scales 0-3 in their lower six bits, bytes 4-7 minima 0-3. Bytes 8-11 hold the lower four bits of
    scales 4-7 (low halves) and of minima 4-7 (high halves), whose upper two bits are on top of bytes 0-3 and 4-7.
    """
    first, second, third = data[:, 0:4], data[:, 4:8], data[:, 8:12]
    low, top = np.uint8(63), np.uint8(48)
    scales = [first & low, (third & np.uint8(15)) | ((first >> np.uint8(2)) & top)]
    minima = [second & low, (third >> np.uint8(4)) | ((second >> np.uint8(2)) & top)]
    return np.concatenate(scales, axis=1).astype(np.float32), np.concatenate(minima, axis=1).astype(np.float32)


class Q4_K(Packed):
    """f16 d · f16 dmin · 12 bytes of scales and minima · 128 of codes: w = d·sc·code - dmin·m."""

    name = "Q4_K"
    block = 256
    block_bytes = 144

    def unpack(self, blocks: U8) -> Units:
        sc, m = _scales_and_minima(blocks[:, 4:16])
        codes = fields(blocks[:, 16:], bits=4, run=32).astype(np.int16)
        return Units(codes, d=half(blocks[:, :2]), sc=sc, dmin=-half(blocks[:, 2:4]), m=m)


class Q5_K(Packed):
    """f16 d · f16 dmin · 12 bytes of scales and minima · 32 of fifth bits · 128 of lower bits: as Q4_K."""

    name = "Q5_K"
    block = 256
    block_bytes = 176

    def unpack(self, blocks: U8) -> Units:
        sc, m = _scales_and_minima(blocks[:, 4:16])
        high = fields(blocks[:, 16:48], bits=1, run=32)
        low = fields(blocks[:, 48:], bits=4, run=32)
        codes = (low | (high << np.uint8(4))).astype(np.int16)
        return Units(codes, d=half(blocks[:, :2]), sc=sc, dmin=-half(blocks[:, 2:4]), m=m)
