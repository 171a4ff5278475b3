"""What the packed encodings share: bit fields taken out of bytes, and a decode made of units.

Layouts are those of ggml-common.h (the `block_*` structures); every encoding here is little-endian on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from engine.weights.encoding import F32, U8, Units

_SLAB = 1 << 18
"""Weights that `decode` takes apart at a time, which bounds its temporaries to a few megabytes."""


def half(data: U8) -> F32:
    """uint8 [n, 2k] → the k float16 values of each row as float32 [n, k]."""
    with np.errstate(all="ignore"):
        return data.view("<f2").astype(np.float32)


def fields(data: U8, *, bits: int, run: int) -> U8:
    """Unsigned fields of `bits` bits: uint8 [n, k] → uint8 [n, k · 8 / bits].

    Each run of `run` bytes holds 8 / bits runs of `run` values: first those in the lowest bits of all its bytes,
    then those in the next bits, and so on.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, np.newaxis]
    values = (data.reshape(len(data), data.shape[1] // run, 1, run) >> shifts) & np.uint8((1 << bits) - 1)
    return values.reshape(len(data), data.shape[1] * 8 // bits)


class Packed(ABC):
    """Base of the packed encodings. A subclass gives its geometry and takes blocks apart; the rest follows."""

    name: str
    block: int
    block_bytes: int
    width: int = 32
    """Weights per unit."""

    @abstractmethod
    def unpack(self, blocks: U8) -> Units:
        """uint8 [n, block_bytes] → the units of n blocks, one row per block.

        `codes` may have any shape that holds [n, block] in order; a scale has a column per unit, or one for them all.
        """

    def units(self, rows: U8) -> Units:
        """uint8 [rows, row_bytes] → the contract's view. Raises ValueError where a row is no whole number of blocks."""
        n_rows, row_bytes = rows.shape
        if row_bytes % self.block_bytes:
            raise ValueError(f"rows of {row_bytes} bytes are no whole number of {self.name} blocks")
        per_block = self.block // self.width
        n_units = row_bytes // self.block_bytes * per_block

        def spread(scale: F32) -> F32:
            return np.broadcast_to(scale, (len(scale), per_block)).reshape(n_rows, n_units)

        parts = self.unpack(rows.reshape(-1, self.block_bytes))
        return Units(
            codes=parts.codes.reshape(n_rows, n_units, self.width),
            d=spread(parts.d),
            sc=None if parts.sc is None else spread(parts.sc),
            dmin=None if parts.dmin is None else spread(parts.dmin),
            m=None if parts.m is None else spread(parts.m),
        )

    def decode(self, rows: U8) -> F32:
        """uint8 [rows, row_bytes] → float32 [rows, columns]: (d·sc)·code + dmin·m, each step rounded in that order.

        Bit-equal to `gguf.quants.dequantize`, but for the sign and payload of a NaN. Raises ValueError as `units`.
        """
        n_rows, row_bytes = rows.shape
        out = np.empty((n_rows, row_bytes // self.block_bytes * self.block), np.float32)
        step = max(1, _SLAB // max(1, out.shape[1]))
        with np.errstate(all="ignore"):
            for start in range(0, n_rows, step):
                units = self.units(rows[start : start + step])
                weights = out[start : start + step].reshape(units.codes.shape)
                scale = units.d if units.sc is None else units.d * units.sc
                np.multiply(units.codes, scale[..., np.newaxis], out=weights)
                if units.dmin is not None:
                    minimum = units.dmin if units.m is None else units.dmin * units.m
                    weights += minimum[..., np.newaxis]
        return out
