"""Recurrent layers by the contract (CONTRACT.md, section 12): token by token, in float32."""

from __future__ import annotations

import numpy as np

from engine.kernels.plain.functions import F32, exp


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
