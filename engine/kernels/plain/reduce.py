"""Sums in the contract's order: eight lanes, then one fixed tree (CONTRACT.md, section 2)."""

from __future__ import annotations

import numpy as np

from engine.kernels.plain.functions import F32

LANES = 8


@np.errstate(all="ignore")
def tree(lanes: F32) -> F32:
    """[…, 8] → […]: ((0+4)+(2+6)) + ((1+5)+(3+7))."""
    half = lanes[..., :4] + lanes[..., 4:]
    quarter = half[..., :2] + half[..., 2:]
    total: F32 = quarter[..., 0] + quarter[..., 1]
    return total


@np.errstate(all="ignore")
def lane_sum(terms: F32) -> F32:
    """[…, n] → […]: term i to lane i mod 8 in ascending order, lanes start at +0, then the tree.

    Padding with +0 changes no lane: a lane that starts at +0 is never −0.
    """
    n = terms.shape[-1]
    steps = -(-n // LANES)
    padded = np.zeros((*terms.shape[:-1], steps * LANES), np.float32)
    padded[..., :n] = terms
    padded = padded.reshape(*terms.shape[:-1], steps, LANES)
    lanes = np.zeros((*terms.shape[:-1], LANES), np.float32)
    for step in range(steps):
        lanes = lanes + padded[..., step, :]
    return tree(lanes)


@np.errstate(all="ignore")
def maximum(values: F32) -> F32:
    """[…, n] → […]: the largest value; NaN never wins a comparison; −Inf where nothing does."""
    top: F32 = np.max(np.where(np.isnan(values), np.float32(-np.inf), values), axis=-1, initial=-np.inf)
    return top
