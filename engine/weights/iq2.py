"""IQ2_XXS, IQ2_XS and IQ2_S: weights by eights from codebooks of the magnitudes 8, 25 and 43, with a sign for each.

w = d·(0.5 + n)·0.25·(± magnitude); the sub-scale is (2·n + 1) / 8, and its product with d is exact in float32.
"""

from __future__ import annotations

import numpy as np

from engine.weights import grids
from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half


class IQ2_XXS(Packed):
    """f16 d · 8 bytes per 32: four indices, then a word of four times seven sign bits and n in the upper four."""

    name = "IQ2_XXS"
    block = 256
    block_bytes = 66

    def unpack(self, blocks: U8) -> Units:
        points = grids.IQ2_XXS[blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4]]
        words = blocks[:, 2:].view("<u4")[:, 1::2]
        signs, numbers = grids.signs_and_numbers(words)
        return Units(grids.signed(points, signs), d=half(blocks[:, :2]), sc=grids.sub_scales(numbers, 8))


class IQ2_XS(Packed):
    """f16 d · 32 words: nine bits of index, seven of signs · 8 bytes: n in four bits per 16."""

    name = "IQ2_XS"
    block = 256
    block_bytes = 74
    width = 16

    def unpack(self, blocks: U8) -> Units:
        words = blocks[:, 2:66].view("<u2")
        points = grids.IQ2_XS[words & np.uint16(511)]
        signs = grids.even_signs(words >> np.uint16(9))
        numbers = fields(blocks[:, 66:], bits=4, run=1)
        return Units(grids.signed(points, signs), d=half(blocks[:, :2]), sc=grids.sub_scales(numbers, 8))


class IQ2_S(Packed):
    """f16 d · 32 bytes of indices · 32 of signs · 8 of upper index bits, two each · 8 bytes: n in four bits per 16."""

    name = "IQ2_S"
    block = 256
    block_bytes = 82
    width = 16

    def unpack(self, blocks: U8) -> Units:
        high = fields(blocks[:, 66:74], bits=2, run=1).astype(np.uint16)
        points = grids.IQ2_S[blocks[:, 2:34] | high << np.uint16(8)]
        numbers = fields(blocks[:, 74:], bits=4, run=1)
        return Units(grids.signed(points, blocks[:, 34:66]), d=half(blocks[:, :2]), sc=grids.sub_scales(numbers, 8))
