"""Recurrent layers in plain torch, for the reference alone: one token after the other, bound to no contract."""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.kernels.state import NORM_EPS, StateSpec

Tensor = torch.Tensor


class ReferenceState:
    """One layer's recurrent state; `capacity` is what it was asked for and bounds nothing."""

    kind = "f32"

    def __init__(self, spec: StateSpec, capacity: int, dtype: torch.dtype) -> None:
        self.spec, self.capacity = spec, capacity
        self.inputs = torch.zeros(spec.inputs, dtype=dtype)
        self.memory = torch.zeros(spec.memory, dtype=dtype)
        self.nbytes = self.inputs.nbytes + self.memory.nbytes

    def take(self, other: ReferenceState) -> None:
        """Become the same as `other`."""
        self.inputs, self.memory = other.inputs.clone(), other.memory.clone()


def causal_convolution(x: Tensor, taps: Tensor, state: ReferenceState, start: int) -> Tensor:
    """Depthwise over the inputs before and x [n, channels], by taps [channels, taps]: → [n, channels]."""
    before = state.inputs if start else torch.zeros_like(state.inputs)
    history = torch.cat([before, x])
    state.inputs = history[len(x) :].clone()
    return functional.conv1d(history.T[None], taps[:, None], groups=x.shape[1])[0].T


def delta_rule(
    x: Tensor, a: Tensor, b: Tensor, rate: Tensor, bias: Tensor, state: ReferenceState, start: int
) -> Tensor:
    """The gated delta rule (Yang, Kautz, Hatamizadeh, arXiv:2412.06464, equation 10): → [n, n_heads · value_dim]."""
    spec = state.spec
    n, keys = len(x), spec.n_key_heads * spec.key_dim
    q, k = (x[:, at : at + keys].reshape(n, spec.n_key_heads, spec.key_dim) for at in (0, keys))
    v = x[:, 2 * keys :].reshape(n, spec.n_heads, spec.value_dim)
    repeats = spec.n_heads // spec.n_key_heads
    q = (_l2_norm(q) * spec.scale).repeat(1, repeats, 1)
    k = _l2_norm(k).repeat(1, repeats, 1)
    decay, beta = (rate * functional.softplus(a + bias)).exp(), b.sigmoid()
    memory = state.memory if start else torch.zeros_like(state.memory)
    rows = []
    for t in range(n):
        memory = memory * decay[t, :, None, None]
        known = torch.einsum("hk,hkv->hv", k[t], memory)
        memory = memory + torch.einsum("hk,hv->hkv", k[t], (v[t] - known) * beta[t, :, None])
        rows.append(torch.einsum("hk,hkv->hv", q[t], memory).flatten())
    state.memory = memory
    return torch.stack(rows)


def _l2_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + NORM_EPS)
