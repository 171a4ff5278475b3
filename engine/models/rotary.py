"""Rotary position tables (Su et al., RoFormer, arXiv:2104.09864), made once on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Rotary

F64 = npt.NDArray[np.float64]
Style = Literal["interleaved", "halves"]


@dataclass(frozen=True, eq=False)
class Turn:
    """How queries and keys turn: by `frequencies` float64 [dims/2], in radians per position; then times `amplitude`."""

    frequencies: F64
    style: Style
    amplitude: float = 1.0

    def table(self, context: int) -> Rotary:
        """cos and sin for positions 0 … context - 1: 4 · dims bytes for each position.

        Angles, functions and products are float64, rounded once to float32.
        """
        angles = np.outer(np.arange(context, dtype=np.float64), self.frequencies)
        cos, sin = (self.amplitude * function(angles) for function in (np.cos, np.sin))
        return Rotary(cos.astype(np.float32), sin.astype(np.float32), self.style)


def inverse_frequencies(theta: float, dims: int) -> F64:
    """theta^(-2i/dims) for i = 0 … dims/2 - 1: float64 [dims/2]."""
    return np.power(theta, -np.arange(0, dims, 2, dtype=np.float64) / dims)
