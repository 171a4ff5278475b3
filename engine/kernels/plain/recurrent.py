"""Recurrent layers by the contract (CONTRACT.md, section 12): token by token, in float32."""

from __future__ import annotations

import numpy as np

from engine.kernels.plain.functions import F32, exp, sigmoid, softplus
from engine.kernels.plain.normalise import l2_norm
from engine.kernels.state import NORM_EPS, StateSpec


class PlainState:
    """One layer's recurrent state; `capacity` is what it was asked for and bounds nothing."""

    kind = "f32"

    def __init__(self, spec: StateSpec, capacity: int) -> None:
        self.spec, self.capacity, self.nbytes = spec, capacity, spec.nbytes
        self.inputs = np.zeros(spec.inputs, np.float32)
        self.memory = np.zeros(spec.memory, np.float32)

    def take(self, other: PlainState) -> None:
        """Become the same as `other`."""
        self.inputs, self.memory = other.inputs.copy(), other.memory.copy()


@np.errstate(all="ignore")
def causal_convolution(x: F32, weight: F32, state: F32) -> tuple[F32, F32]:
    """Depthwise: x [n, channels], weight [channels, k], state [k−1, channels] (the inputs before x).

    → (y [n, channels], the next state). Taps are added in ascending time, oldest first, starting from +0.
    """
    history = np.concatenate([state, x])
    taps = weight.shape[1]
    out: F32 = np.zeros_like(x)
    for tap in range(taps):
        term: F32 = history[tap : tap + x.shape[0]] * weight[:, tap]
        out = out + term
    return out, history[history.shape[0] - (taps - 1) :].copy()


@np.errstate(all="ignore")
def gated_delta(q: F32, k: F32, v: F32, g: F32, beta: F32, state: F32) -> tuple[F32, F32]:
    """The gated delta rule (Yang, Kautz, Hatamizadeh, 2024), q, k [n, heads, dk], v [n, heads, dv], g, beta [n, heads].

    state [heads, dk, dv]; q is already scaled, q and k normalised. A token: S ← S·exp(g); e = (v − Σᵢ S[i]·k[i])·beta;
    S[i] ← S[i] + k[i]·e; out = Σᵢ S[i]·q[i], both sums in ascending i from +0. → (out [n, heads, dv], state).
    """
    s = state.copy()
    out = np.zeros_like(v)
    for t in range(q.shape[0]):
        s = s * exp(g[t])[:, None, None]
        read = np.zeros_like(v[t])
        for i in range(s.shape[1]):
            read = read + s[:, i] * k[t, :, i, None]
        error = (v[t] - read) * beta[t][:, None]
        s = s + k[t][:, :, None] * error[:, None, :]
        for i in range(s.shape[1]):
            out[t] = out[t] + s[:, i] * q[t, :, i, None]
    return out, s


@np.errstate(all="ignore")
def delta_rule(x: F32, a: F32, b: F32, rate: F32, bias: F32, spec: StateSpec, memory: F32) -> tuple[F32, F32]:
    """x [n, queries, keys and values], a, b [n, n_heads], rate, bias [n_heads], memory as `spec` has it.

    → (out [n, n_heads · value_dim], memory). Queries and keys are L2-normed, then queries scaled; value head h takes
    those of key head h mod n_key_heads; g = rate·softplus(a + bias), beta = sigmoid(b).
    """
    n, keys = x.shape[0], spec.n_key_heads * spec.key_dim
    shared = np.arange(spec.n_heads) % spec.n_key_heads
    q, k = (x[:, at : at + keys].reshape(n, spec.n_key_heads, spec.key_dim) for at in (0, keys))
    q = l2_norm(q, NORM_EPS) * np.float32(spec.scale)
    k = l2_norm(k, NORM_EPS)
    v = x[:, 2 * keys :].reshape(n, spec.n_heads, spec.value_dim)
    g = rate * softplus(a + bias)
    out, memory = gated_delta(q[:, shared], k[:, shared], v, g, sigmoid(b), memory)
    return out.reshape(n, -1), memory
