"""Weights that are plain floating-point numbers: F32, F16 and BF16, little-endian, without blocks."""

from __future__ import annotations

import numpy as np

from engine.weights.encoding import F32 as Floats
from engine.weights.encoding import U8
from engine.weights.packed import half


class F32:
    """IEEE 754 binary32."""

    name = "F32"
    block = 1
    block_bytes = 4

    def decode(self, rows: U8) -> Floats:
        """uint8 [rows, 4 · columns] → float32 [rows, columns], a copy with the same bits."""
        return rows.view("<f4").astype(np.float32)


class F16:
    """IEEE 754 binary16."""

    name = "F16"
    block = 1
    block_bytes = 2

    def decode(self, rows: U8) -> Floats:
        """uint8 [rows, 2 · columns] → float32 [rows, columns], exact."""
        return half(rows)


class BF16:
    """The upper half of a binary32."""

    name = "BF16"
    block = 1
    block_bytes = 2

    def decode(self, rows: U8) -> Floats:
        """uint8 [rows, 2 · columns] → float32 [rows, columns], exact."""
        return (rows.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
