"""Weights whose products with a token of int8 are one exact sum a row (CONTRACT.md, section 6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine import weights
from engine.kernels.ops import Weight
from engine.weights.tq import Ternary


def row_scales(weight: Weight) -> npt.NDArray[np.float32] | None:
    """float32 [rows], one scale for each row of ternary codes, where the weight takes a token's int8 activations.

    `None` for weights that do not, for other encodings, and where a row has several scales.
    """
    encoding = weights.get(weight.encoding)
    if weight.activations != "token" or not isinstance(encoding, Ternary):
        return None
    return encoding.row_scales(weight.data)
