"""IQ3_XXS and IQ3_S: weights by fours from codebooks of eight magnitudes, with a sign for each."""

from __future__ import annotations

import numpy as np

from engine.weights import grids
from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class IQ3_XXS(Packed):
    """f16 d · 64 bytes of indices · 8 words, one per 32: four times seven sign bits, and n in the upper four.

    w = d·(0.5 + n)·0.5·(± magnitude); the sub-scale is (2·n + 1) / 4, and its product with d is exact in float32.
    """

    name = "IQ3_XXS"
    block = 256
    block_bytes = 98

    def unpack(self, blocks: U8) -> Units:
        points = grids.IQ3_XXS[blocks[:, 2:66]]
        signs, numbers = grids.signs_and_numbers(blocks[:, 66:].view("<u4"))
        return Units(grids.signed(points, signs), d=half(blocks[:, :2]), sc=grids.sub_scales(numbers, 4))


class IQ3_S(Packed):
    """f16 d · 64 bytes of indices · 8 of ninth index bits · 32 of signs · 4 bytes: n in four bits per 32.

    w = d·(2·n + 1)·(± magnitude).
    """

    name = "IQ3_S"
    block = 256
    block_bytes = 110

    def unpack(self, blocks: U8) -> Units:
        high = fields(blocks[:, 66:74], bits=1, run=1).astype(np.uint16)
        points = grids.IQ3_S[blocks[:, 2:66] | high << np.uint16(8)]
        numbers = fields(blocks[:, 106:], bits=4, run=1)
        return Units(grids.signed(points, blocks[:, 74:106]), d=half(blocks[:, :2]), sc=grids.sub_scales(numbers, 1))
