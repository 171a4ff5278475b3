"""Linear layers by the contract (CONTRACT.md, sections 4 to 6), in numpy, slowly and readably."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.kernels.plain.functions import F32
from engine.kernels.plain.reduce import LANES, lane_sum, tree
from engine.weights.encoding import Units

BLOCK = 32
Q_MAX = 32512
TINY = np.float32(2.0**-100)


@dataclass(frozen=True)
class Quantised:
    """Activations in blocks of 32: `q` int16 [n, blocks, 32], `s` float32 [n, blocks]."""

    q: npt.NDArray[np.int16]
    s: F32


@np.errstate(all="ignore")
def quantise(x: F32) -> Quantised:
    """x float32 [n, columns], columns a multiple of 32 (section 4)."""
    blocks = x.reshape(x.shape[0], -1, BLOCK)
    finite = np.all(np.isfinite(blocks), axis=-1)
    m = np.max(np.abs(np.where(finite[..., None], blocks, np.float32(0))), axis=-1)
    live = finite & (m >= TINY)
    s = np.where(live, m / np.float32(Q_MAX), np.float32(0))
    ratio = np.rint(blocks / np.where(live, s, np.float32(1))[..., None])
    q = np.where(live[..., None], np.clip(ratio, -Q_MAX, Q_MAX), np.float32(0)).astype(np.int16)
    return Quantised(q, np.where(finite, s, np.float32(np.nan)))


@np.errstate(all="ignore")
def linear_packed(x: Quantised, weight: Units) -> F32:
    """x [n, columns] against packed rows → [n, rows] (section 5)."""
    rows, n_units, width = weight.codes.shape
    n = x.q.shape[0]
    q = x.q.reshape(n, n_units, width).astype(np.int64)
    s = np.repeat(x.s, BLOCK // width, axis=1)
    dot = np.einsum("nuw,ruw->nru", q, weight.codes.astype(np.int64)).astype(np.int32).astype(np.float32)
    scale = weight.d if weight.sc is None else weight.d * weight.sc
    terms = (scale[None] * s[:, None]) * dot
    minima = None
    if weight.dmin is not None:
        minimum = weight.dmin if weight.m is None else weight.dmin * weight.m
        total = q.sum(axis=-1).astype(np.float32)
        minima = (minimum[None] * s[:, None]) * total[:, None]
    lanes = np.zeros((n, rows, LANES), np.float32)
    for u in range(n_units):
        lanes[..., u % LANES] = lanes[..., u % LANES] + terms[..., u]
        if minima is not None:
            lanes[..., u % LANES] = lanes[..., u % LANES] + minima[..., u]
    return tree(lanes)


@np.errstate(all="ignore")
def linear_float(x: F32, weight: F32) -> F32:
    """x [n, columns] against decoded float rows [rows, columns] → [n, rows] (section 6)."""
    return lane_sum(x[:, None, :] * weight[None, :, :])


@np.errstate(all="ignore")
def linear_transposed(x: F32, weight: F32) -> F32:
    """x [n, rows] times decoded rows [rows, columns] → [n, columns]: a running sum over the rows (section 6)."""
    out = np.zeros((x.shape[0], weight.shape[1]), np.float32)
    for row in range(weight.shape[0]):
        out = out + x[:, row, None] * weight[row]
    return out


@np.errstate(all="ignore")
def quantise_token(x: F32) -> tuple[F32, F32]:
    """BitNet's activations (section 6): x [n, columns] → q, whole numbers [n, columns], and a [n, 1], NaN where a row
    has Inf or NaN."""
    finite = np.all(np.isfinite(x), axis=-1, keepdims=True)
    kept = np.where(finite, x, np.float32(0))
    step = np.float32(127) / np.maximum(np.max(np.abs(kept), axis=-1, keepdims=True), np.float32(1e-5))
    q = np.clip(np.rint(kept * step), np.float32(-128), np.float32(127))
    return q, np.where(finite, step, np.float32(np.nan))


@np.errstate(all="ignore")
def round_token(x: F32) -> F32:
    """x [n, columns] as BitNet's activations give it back: q ÷ a (section 6)."""
    q, step = quantise_token(x)
    return q / step


@np.errstate(all="ignore")
def linear_bitnet(x: F32, codes: npt.NDArray[np.integer], scale: F32) -> F32:
    """BitNet: x [n, columns], codes −1, 0, 1 [rows, columns], one scale a row [rows] → [n, rows] (section 6)."""
    q, step = quantise_token(x)
    dot = (q.astype(np.int64) @ codes.astype(np.int64).T).astype(np.int32).astype(np.float32)
    return (dot / step) * scale[None]
