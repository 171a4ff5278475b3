"""Rotary position tables (Su et al., RoFormer, arXiv:2104.09864), made once on the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Rotary

F64 = npt.NDArray[np.float64]
Axes = npt.NDArray[np.int64]
Style = Literal["interleaved", "halves"]

AT_ONCE = 1024
"""Places whose angles are worked out together: in float64 those of a long context would take four times its tables."""


@dataclass(frozen=True, eq=False)
class Turn:
    """How queries and keys turn: by `frequencies` float64 [dims/2], in radians per position; then times `amplitude`.

    Where rows of a picture have places of their own in time, height and width, `axes` [dims/2] says which of the three
    turns each pair; text has the same place on all of them.
    """

    frequencies: F64
    style: Style
    amplitude: float = 1.0
    axes: Axes | None = None

    def table(self, context: int) -> Rotary:
        """cos and sin for positions 0 … context - 1: 4 · dims bytes for each position."""
        return self.at(np.arange(context))

    def at(self, places: npt.NDArray[np.int64], into: Rotary | None = None) -> Rotary:
        """cos and sin for the places int [n] of text, or int [n, 3] where there are axes; written over those of `into`,
        a table of as many places, where it is given.

        Angles, functions and products are float64, rounded once to float32.
        """
        if into is None:
            cos, sin = (np.empty((len(places), self.frequencies.size), np.float32) for _ in range(2))
            into = Rotary(cos, sin, self.style)
        for start in range(0, len(places), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            turned = places[part, None] if places.ndim == 1 else places[part][:, self.axes]
            angles = turned.astype(np.float64) * self.frequencies
            into.cos[part], into.sin[part] = self.amplitude * np.cos(angles), self.amplitude * np.sin(angles)
        return into


def table_bytes(tables: Iterable[Rotary]) -> int:
    """Bytes that they hold."""
    return sum(table.cos.nbytes + table.sin.nbytes for table in tables)


def inverse_frequencies(theta: float, dims: int) -> F64:
    """theta^(-2i/dims) for i = 0 … dims/2 - 1: float64 [dims/2]."""
    return np.power(theta, -np.arange(0, dims, 2, dtype=np.float64) / dims)
