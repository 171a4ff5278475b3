"""IQ4_NL and IQ4_XS: four bits a weight that choose one of sixteen unevenly spaced levels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.weights.encoding import U8, Units
from engine.weights.packed import Packed, fields, half

_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""`kvalues_iq4nl` in ggml-common.h."""


def _codes(data: U8) -> npt.NDArray[np.int16]:
    return np.array(_LEVELS, np.int16)[fields(data, bits=4, run=16)]


class IQ4_NL(Packed):
    """f16 d · 16 bytes of choices, weights 0-15 in the low halves: w = d·level."""

    name = "IQ4_NL"
    block = 32
    block_bytes = 18

    def unpack(self, blocks: U8) -> Units:
        return Units(_codes(blocks[:, 2:]), d=half(blocks[:, :2]))


class IQ4_XS(Packed):
    """f16 d · 2 bytes of upper scale bits · 4 of lower ones · 128 of choices: w = d·(sc - 32)·level, sc per 32."""

    name = "IQ4_XS"
    block = 256
    block_bytes = 136

    def unpack(self, blocks: U8) -> Units:
        high = fields(blocks[:, 2:4], bits=2, run=1)
        low = fields(blocks[:, 4:8], bits=4, run=1)
        scales = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)
        return Units(_codes(blocks[:, 8:]), d=half(blocks[:, :2]), sc=scales)
