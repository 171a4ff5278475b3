"""Attention and the key-value cache by the contract (CONTRACT.md, sections 9 and 10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.errors import NumericsError
from engine.kernels.kv import CHUNK, row_bytes
from engine.kernels.ops import AttentionSpec, CacheSpec
from engine.kernels.plain.functions import F32, exp, softcap
from engine.kernels.plain.reduce import lane_sum, maximum


@np.errstate(all="ignore")
def store_round(x: F32, kind: str) -> F32:
    """What a cache gives back for x […, width]: rounded once by `kind`, decoded to float32.

    Raises NumericsError where a finite value, or the scale of a finite block, leaves the range of f16.
    """
    if kind == "f32":
        return x
    if kind == "f16":
        out: F32 = x.astype(np.float16).astype(np.float32)
        if (np.isinf(out) & np.isfinite(x)).any():
            raise NumericsError("A key or value is too large for an f16 cache; load the model with an f32 cache.")
        return out
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    finite = np.all(np.isfinite(blocks), axis=-1)
    m = np.max(np.abs(np.where(finite[..., None], blocks, np.float32(0))), axis=-1)
    d = (m / np.float32(127)).astype(np.float16).astype(np.float32)
    if np.isinf(d).any():
        raise NumericsError("A key or value is too large for a q8_0 cache; load the model with an f32 cache.")
    q = np.clip(np.rint(blocks / np.where(d == 0, np.float32(1), d)[..., None]), -127, 127)
    q = np.where((d == 0)[..., None] | ~finite[..., None], np.float32(0), q)
    out = np.where(finite, d, np.float32(np.nan))[..., None] * q
    return out.reshape(x.shape)


class PlainCache:
    """One layer's keys and values, already rounded: float32 [capacity, n_kv_heads, dim]. Values that are part of the
    keys are a view."""

    def __init__(self, spec: CacheSpec, capacity: int, kind: str) -> None:
        row_bytes(spec, kind)
        self.spec, self.capacity, self.kind = spec, capacity, kind
        self.keys = np.zeros((capacity, spec.n_kv_heads, spec.key_dim), np.float32)
        if spec.latent:
            self.values, self.nbytes = self.keys[..., : spec.value_dim], self.keys.nbytes
        else:
            self.values = np.zeros((capacity, spec.n_kv_heads, spec.value_dim), np.float32)
            self.nbytes = self.keys.nbytes + self.values.nbytes

    def store(self, k: F32, v: F32 | None, start: int) -> None:
        assert (v is None) == self.spec.latent
        stop = start + k.shape[0]
        self.keys[start:stop] = store_round(k.reshape(k.shape[0], -1, self.spec.key_dim), self.kind)
        if v is not None:
            self.values[start:stop] = store_round(v.reshape(v.shape[0], -1, self.spec.value_dim), self.kind)


@np.errstate(all="ignore")
def attention(
    q: F32,
    keys: F32,
    values: F32,
    spec: AttentionSpec,
    start: int,
    sinks: F32 | None = None,
    until: Sequence[int] | None = None,
) -> F32:
    """q [n, n_heads, key_dim] at positions `start …` against keys, values [length, n_kv_heads, dim].

    → [n, n_heads, value_dim]. `sinks` is one logit a head; row i sees positions before `until[i]`, its own being the
    last without it.
    """
    n, n_heads = q.shape[:2]
    length, n_kv_heads, value_dim = values.shape
    group = n_heads // n_kv_heads
    scaled = q * np.float32(spec.scale)
    top = np.full((n, n_heads), -np.inf, np.float32)
    total = np.zeros((n, n_heads), np.float32)
    out = np.zeros((n, n_heads, value_dim), np.float32)
    row = np.arange(start, start + n)[:, None]
    end = row + 1 if until is None else np.asarray(until)[:, None]
    for first in range(0, length, CHUNK):
        position = np.arange(first, min(first + CHUNK, length))
        seen = position < end
        if spec.window is not None:
            seen &= position > row - spec.window
        k = np.repeat(keys[position], group, axis=1)
        v = np.repeat(values[position], group, axis=1)
        score = lane_sum(scaled[:, :, None, :] * k.transpose(1, 0, 2)[None])
        if spec.softcap is not None:
            score = softcap(score, spec.softcap)
        mask = seen[:, None, :]
        chunk_top = maximum(np.where(mask, score, np.float32(-np.inf)))
        p = np.where(mask, exp(score - chunk_top[..., None]), np.float32(0))
        chunk_total = lane_sum(p)
        chunk_out = np.zeros_like(out)
        for j in range(position.size):
            added = chunk_out + p[:, :, j, None] * v[j][None]
            chunk_out = np.where(seen[:, j, None, None], added, chunk_out)
        any_seen = np.any(seen, axis=1)[:, None]
        new_top = np.where(chunk_top > top, chunk_top, top)
        a, b = exp(top - new_top), exp(chunk_top - new_top)
        total = np.where(any_seen, total * a + chunk_total * b, total)
        out = np.where(any_seen[..., None], out * a[..., None] + chunk_out * b[..., None], out)
        top = np.where(any_seen, new_top, top)
    if sinks is not None:
        new_top = np.where(sinks[None] > top, sinks[None], top)
        a = exp(top - new_top)
        total = total * a + exp(sinks[None] - new_top)
        out = out * a[..., None]
    return out / total[..., None]
