"""IQ1_S and IQ1_M: weights by eights from a codebook of -1, 0 and +1, shifted by an eighth up or down.

A code is eight times the shifted weight, 8·point ± 1, so that it is a whole number; the sub-scale (2·n + 1) / 8, exact
in float32, makes up for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.weights import grids
from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half

_STEPS = np.arange(0, 12, 3, dtype=np.uint16)
"""Where the four three-bit fields of a word begin."""


def _codes(low: U8, high: npt.NDArray[np.uint16], down: npt.NDArray[np.bool_]) -> npt.NDArray[np.int16]:
    """Indices' lower eight bits and upper three, each [n, 32], and whether the eight go down → [n, 32, 8]."""
    points = grids.IQ1[low | (high << np.uint16(8))]
    return points * np.int16(8) + np.where(down, np.int16(-1), np.int16(1))[..., np.newaxis]


class IQ1_S(Packed):
    """f16 d · 32 bytes of indices · 8 words, one per 32: four times three upper bits, n in three, one for down.

    w = d·(2·n + 1)·(point ± 1/8).
    """

    name = "IQ1_S"
    block = 256
    block_bytes = 50

    def unpack(self, blocks: U8) -> Units:
        words = blocks[:, 34:50].view("<u2")
        high = (words[..., np.newaxis] >> _STEPS & np.uint16(7)).reshape(-1, 32)
        codes = _codes(blocks[:, 2:34], high, np.repeat(words >> np.uint16(15) == 1, 4, axis=1))
        return Units(codes, d=half(blocks[:, :2]), sc=grids.sub_scales(words >> np.uint16(12) & np.uint16(7), 8))


class IQ1_M(Packed):
    """32 bytes of indices · 32 half bytes: three upper bits, one for down · 4 words: four times n in three bits per 16.

    The upper four bits of the words, the first word's lowest, are the f16 d. w = d·(2·n + 1)·(point ± 1/8).
    """

    name = "IQ1_M"
    block = 256
    block_bytes = 56
    width = 16

    def unpack(self, blocks: U8) -> Units:
        halves = fields(blocks[:, 32:48], bits=4, run=1).astype(np.uint16)
        words = blocks[:, 48:56].view("<u2")
        d = np.bitwise_or.reduce(words >> np.uint16(12) << np.arange(0, 16, 4, dtype=np.uint16), axis=1, keepdims=True)
        numbers = (words[..., np.newaxis] >> _STEPS & np.uint16(7)).reshape(-1, 16)
        codes = _codes(blocks[:, :32], halves & np.uint16(7), halves >= 8)
        return Units(codes, d=half(d.astype("<u2").view(np.uint8)), sc=grids.sub_scales(numbers, 8))
