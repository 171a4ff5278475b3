"""Norms, softmax and rotary positions by the contract (CONTRACT.md, sections 7 and 8)."""

from __future__ import annotations

import numpy as np

from engine.kernels.ops import Rotary
from engine.kernels.plain.functions import F32, exp
from engine.kernels.plain.reduce import lane_sum, maximum


@np.errstate(all="ignore")
def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """(x·(1 ÷ √(Σx² ÷ n + eps)))·weight over the last axis."""
    mean = lane_sum(x * x) / np.float32(x.shape[-1])
    r = np.float32(1) / np.sqrt(mean + np.float32(eps))
    out: F32 = (x * r[..., None]) * weight
    return out


@np.errstate(all="ignore")
def layer_norm(x: F32, weight: F32, bias: F32, eps: float) -> F32:
    """((x − mean)·(1 ÷ √(Σ(x − mean)² ÷ n + eps)))·weight + bias over the last axis."""
    n = np.float32(x.shape[-1])
    centred = x - (lane_sum(x) / n)[..., None]
    r = np.float32(1) / np.sqrt(lane_sum(centred * centred) / n + np.float32(eps))
    out: F32 = (centred * r[..., None]) * weight + bias
    return out


@np.errstate(all="ignore")
def l2_norm(x: F32, eps: float) -> F32:
    """x·(1 ÷ √(Σx² + eps)) over the last axis."""
    r: F32 = np.float32(1) / np.sqrt(lane_sum(x * x) + np.float32(eps))
    return x * r[..., None]


@np.errstate(all="ignore")
def softmax(x: F32) -> F32:
    """e ÷ Σe with e = exp(x − max) over the last axis."""
    e = exp(x - maximum(x)[..., None])
    return e / lane_sum(e)[..., None]


@np.errstate(all="ignore")
def rotary(x: F32, n_heads: int, table: Rotary, start: int) -> F32:
    """x [n, n_heads · head_dim]: pairs (a, b) become (a·cos − b·sin, a·sin + b·cos); elements past the table stay."""
    n, width = x.shape
    out = x.reshape(n, n_heads, width // n_heads).copy()
    half = table.cos.shape[1]
    cos = table.cos[start : start + n, None, :]
    sin = table.sin[start : start + n, None, :]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if table.style == "interleaved"
        else (slice(0, half), slice(half, 2 * half))
    )
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out.reshape(n, width)
