"""Rotary position tables (Su et al., RoFormer, arXiv:2104.09864), made once on the host."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Rotary

F64 = npt.NDArray[np.float64]
Style = Literal["interleaved", "halves"]


def inverse_frequencies(theta: float, dims: int) -> F64:
    """theta^(-2i/dims) for i = 0 … dims/2 - 1: float64 [dims/2]."""
    return np.power(theta, -np.arange(0, dims, 2, dtype=np.float64) / dims)


def rotary_table(frequencies: F64, context: int, style: Style) -> Rotary:
    """cos and sin of position · frequency for positions 0 … context - 1.

    `frequencies` is float64 [dims/2], in radians per position. Angles and functions are float64, rounded once to
    float32: 4 · dims bytes for each position.
    """
    angles = np.outer(np.arange(context, dtype=np.float64), frequencies)
    return Rotary(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), style)
