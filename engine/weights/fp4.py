"""MXFP4 and NVFP4: weights of four bits (E2M1) with one eight-bit scale, for each 32 a power of two, for each 16 E4M3.

OCP Microscaling Formats (MX) Specification 1.0, and OCP 8-bit Floating Point Specification 1.0. The levels are doubled,
which makes them whole numbers, and the scales are halved.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.weights.encoding import F32, U8, Units
from engine.weights.packed import Packed, fields

_DOUBLED_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _codes(data: U8, run: int) -> npt.NDArray[np.int16]:
    return np.array(_DOUBLED_LEVELS, np.int16)[fields(data, bits=4, run=run)]


def _halved_e8m0(exponents: U8) -> F32:
    """2^(e - 128) as float32, subnormal for e = 0 and 1. The specification's NaN (255) is no exception, as in ggml."""
    e = exponents.astype(np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << np.minimum(e, 1), (e - np.uint32(1)) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32)


def _halved_e4m3(data: U8) -> F32:
    """Half of an E4M3 number without its sign bit, as float32; the positive NaN (127) is 0, as in ggml."""
    exponents, mantissas = data.astype(np.int32) >> 3 & 15, data.astype(np.int32) & 7
    normal = np.ldexp((8 + mantissas).astype(np.float32), exponents - 11)
    value = np.where(exponents == 0, np.ldexp(mantissas.astype(np.float32), -10), normal)
    return np.where(data == 127, np.float32(0), value)


class MXFP4(Packed):
    """One byte of exponent e · 16 bytes of codes, weights 0-15 in the low halves: w = 2^(e - 128)·(2·level)."""

    name = "MXFP4"
    block = 32
    block_bytes = 17

    def unpack(self, blocks: U8) -> Units:
        return Units(_codes(blocks[:, 1:], run=16), d=_halved_e8m0(blocks[:, :1]))


class NVFP4(Packed):
    """4 scales · 8 bytes of codes per 16 weights, weights 0-7 in the low halves: w = scale/2·(2·level).

    A file may hold one more scale for a whole matrix, as a tensor of its own, which is the model's business.
    """

    name = "NVFP4"
    block = 64
    block_bytes = 36
    width = 16

    def unpack(self, blocks: U8) -> Units:
        return Units(_codes(blocks[:, 4:], run=8), d=_halved_e4m3(blocks[:, :4]))
