"""Weights whose products with a token of int8 are one exact sum a row (CONTRACT.md, section 6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine import weights
from engine.kernels.ops import Weight
from engine.weights.tq import Ternary


def ternary(weight: Weight) -> Ternary | None:
    """The encoding of ternary codes, where the weight takes a token's int8 activations; `None` for other weights."""
    encoding = weights.get(weight.encoding)
    return encoding if weight.activations == "token" and isinstance(encoding, Ternary) else None


def row_scales(weight: Weight) -> npt.NDArray[np.float32] | None:
    """float32 [rows], one scale for each row of `ternary` codes; `None` for other weights, and where a row has several
    scales."""
    encoding = ternary(weight)
    return None if encoding is None else encoding.row_scales(weight.data)
