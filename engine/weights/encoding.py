"""The seam that a weight encoding joins: its geometry, its reference decode, and its contract view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Units:
    """Packed rows taken apart as the numerics contract sees them (CONTRACT.md, "Linear, packed weights").

    A unit is a run of `width` weights that share one scale; `n` units make a row.

    codes    int16 [rows, n, width], signed where the encoding is symmetric (offset already taken away)
    d        float32 [rows, n], the block scale
    sc       float32 [rows, n], the sub-scale, or None where the encoding has none
    dmin     float32 [rows, n], the signed scale of the minimum (negative where it is subtracted), or None
    m        float32 [rows, n], the sub-scale of the minimum, or None where `dmin` alone is the minimum

    The exact value of weight `i` of unit `u` is `d·sc·code + dmin·m`.
    """

    codes: npt.NDArray[np.int16]
    d: F32
    sc: F32 | None = None
    dmin: F32 | None = None
    m: F32 | None = None


class Encoding(Protocol):
    """One way in which weights are packed. Rows are independent: `row_bytes` bytes decode to `columns` weights."""

    name: str
    block: int
    """Weights per block; a row is a whole number of blocks."""
    block_bytes: int

    def decode(self, rows: U8) -> F32:
        """uint8 [rows, row_bytes] → float32 [rows, columns], bit-equal to the `gguf` package."""
        ...


class PackedEncoding(Encoding, Protocol):
    """An encoding whose linear runs over integer codes; the others (F32, F16, BF16) run over decoded floats."""

    def units(self, rows: U8) -> Units:
        """uint8 [rows, row_bytes] → the contract's view of the same weights."""
        ...
