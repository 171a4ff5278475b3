"""The contract's elementary functions in numpy: float32 to float32, each step rounded once (CONTRACT.md, section 3).

Coefficients and measured errors come from `bench/polynomials.py`. NaN in gives NaN out everywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

LOG2E = np.float32(float.fromhex("0x1.715476p+0"))
LN2_HI = np.float32(float.fromhex("0x1.63p-1"))
LN2_LO = np.float32(float.fromhex("-0x1.bd0106p-13"))
EXP_MAX = np.float32(float.fromhex("0x1.62e42ep+6"))
EXP_MIN = np.float32(float.fromhex("-0x1.5d589ep+6"))
SQRT_HALF_BITS = np.int32(0x3F3504F3)


def _coefficients(*texts: str) -> tuple[np.float32, ...]:
    return tuple(np.float32(float.fromhex(text)) for text in texts)


EXP = _coefficients("0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558f2p-5", "0x1.1239d4p-7", "0x1.6a244cp-10")
LOG = _coefficients(
    *("0x1.555546p-2", "-0x1.ffffeep-3", "0x1.99a546p-3", "-0x1.5562e2p-3", "0x1.2332b8p-3"),
    *("-0x1.fb433cp-4", "0x1.e6511ap-4", "-0x1.e2e98p-4", "0x1.1b418ap-4"),
)
TANH = _coefficients("-0x1.555534p-2", "0x1.110768p-3", "-0x1.b84448p-5", "0x1.5256d2p-6", "-0x1.76ac06p-8")
ERF_SMALL = _coefficients(
    *("0x1.20dd74p+0", "-0x1.81273ep-2", "0x1.ce2d2p-4", "-0x1.b7fbb4p-6"),
    *("0x1.5419f6p-8", "-0x1.a485eep-11", "0x1.4ae4dp-14"),
)
ERF_LARGE = _coefficients(
    *("-0x1.8a57ap-13", "0x1.212c0cp+0", "0x1.443566p-1", "0x1.bc1518p-4"),
    *("-0x1.9d0306p-6", "0x1.138cc0p-8", "-0x1.cec60ap-12", "0x1.6bd7f0p-16"),
)


def polynomial(coefficients: tuple[np.float32, ...], x: F32) -> F32:
    """Horner's rule, highest power first, a product and a sum rounded apart; `coefficients` lowest power first."""
    p = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        p = p * x + c
    return p


def _power_of_two(n: I32) -> F32:
    return ((n + np.int32(127)) << np.int32(23)).view(np.float32)


@np.errstate(all="ignore")
def exp(x: F32) -> F32:
    """e^x. Above EXP_MAX it is +Inf, below EXP_MIN it is +0 (no subnormal results)."""
    x = np.asarray(x, np.float32)
    inside = np.clip(np.where(np.isnan(x), np.float32(0), x), EXP_MIN, EXP_MAX)
    n: F32 = np.rint(inside * LOG2E)
    r: F32 = (inside - n * LN2_HI) - n * LN2_LO
    y = (polynomial(EXP, r) * (r * r) + r) + np.float32(1)
    whole = n.astype(np.int32)
    half = whole >> np.int32(1)
    y = (y * _power_of_two(half)) * _power_of_two(whole - half)
    y = np.where(x > EXP_MAX, np.float32(np.inf), np.where(x < EXP_MIN, np.float32(0), y))
    return np.where(np.isnan(x), x, y)


@np.errstate(all="ignore")
def log(x: F32) -> F32:
    """Natural logarithm. Negative gives NaN, zero of either sign gives −Inf."""
    x = np.asarray(x, np.float32)
    tiny = x < np.float32(2.0**-126)
    scaled = np.where(tiny, x * np.float32(2.0**23), x)
    offset = np.ascontiguousarray(scaled).view(np.int32) - SQRT_HALF_BITS
    e = (offset >> np.int32(23)).astype(np.float32) - np.where(tiny, np.float32(23), np.float32(0))
    m = ((offset & np.int32(0x7FFFFF)) + SQRT_HALF_BITS).view(np.float32)
    f = m - np.float32(1)
    z = f * f
    y = (z * f) * polynomial(LOG, f)
    y = y + e * LN2_LO
    y = y - np.float32(0.5) * z
    y = y + f
    y = y + e * LN2_HI
    y = np.where(x == np.float32(np.inf), x, y)
    y = np.where(x == 0, np.float32(-np.inf), y)
    return np.where((x < 0) | np.isnan(x), np.float32(np.nan), y)


@np.errstate(all="ignore")
def tanh(x: F32) -> F32:
    """Hyperbolic tangent: a polynomial below 0.625, 1 − 2 ÷ (e^(2|x|) + 1) with the sign of x from there."""
    x = np.asarray(x, np.float32)
    a, z = np.abs(x), x * x
    small = x + (x * z) * polynomial(TANH, z)
    large = np.float32(1) - np.float32(2) / (exp(np.float32(2) * a) + np.float32(1))
    return np.where(a < np.float32(0.625), small, np.copysign(large, x))


@np.errstate(all="ignore")
def erf(x: F32) -> F32:
    """Error function: an odd polynomial below 1, 1 − e^(−Q(min(|x|, 4))) with the sign of x from there."""
    x = np.asarray(x, np.float32)
    a = np.abs(x)
    small = x * polynomial(ERF_SMALL, x * x)
    b = np.where(a > np.float32(4), np.float32(4), a)
    large = np.float32(1) - exp(-polynomial(ERF_LARGE, b))
    return np.where(a < np.float32(1), small, np.copysign(large, x))


@np.errstate(all="ignore")
def sigmoid(x: F32) -> F32:
    return np.float32(1) / (np.float32(1) + exp(-np.asarray(x, np.float32)))


@np.errstate(all="ignore")
def silu(x: F32) -> F32:
    """x ÷ (1 + e^−x)."""
    x = np.asarray(x, np.float32)
    return x / (np.float32(1) + exp(-x))


@np.errstate(all="ignore")
def softplus(x: F32) -> F32:
    """log(1 + e^x), and x itself above 20."""
    x = np.asarray(x, np.float32)
    return np.where(x > np.float32(20), x, log(np.float32(1) + exp(x)))


@np.errstate(all="ignore")
def gelu_tanh(x: F32) -> F32:
    """(0.5·x)·(1 + tanh(c·(x + 0.044715·((x·x)·x)))), c = √(2/π)."""
    x = np.asarray(x, np.float32)
    inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * ((x * x) * x))
    return (np.float32(0.5) * x) * (np.float32(1) + tanh(inner))


@np.errstate(all="ignore")
def gelu_erf(x: F32) -> F32:
    """(0.5·x)·(1 + erf(x·√½))."""
    x = np.asarray(x, np.float32)
    return (np.float32(0.5) * x) * (np.float32(1) + erf(x * np.float32(0.7071067811865476)))


@np.errstate(all="ignore")
def relu_squared(x: F32) -> F32:
    """r·r with r = x where x > 0 (or NaN), else 0."""
    x = np.asarray(x, np.float32)
    r = np.where(x <= 0, np.float32(0), x)
    return r * r


@np.errstate(all="ignore")
def swiglu_clamped(gate: F32, up: F32, alpha: float, limit: float) -> F32:
    """GPT-OSS: (u + 1)·(g·sigmoid(alpha·g)), g = min(gate, limit), u = clamp(up, ±limit)."""
    bound = np.float32(limit)
    g: F32 = np.where(gate > bound, bound, gate)
    u: F32 = np.where(up > bound, bound, np.where(up < -bound, -bound, up))
    return (u + np.float32(1)) * (g * sigmoid(np.float32(alpha) * g))


@np.errstate(all="ignore")
def softcap(x: F32, cap: float) -> F32:
    """cap·tanh(x ÷ cap)."""
    return np.float32(cap) * tanh(np.asarray(x, np.float32) / np.float32(cap))


def philox(seed: int, position: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011): the seed's 64 bits are the key, the position is the counter."""
    mask = 0xFFFFFFFF
    c = [position & mask, (position >> 32) & mask, 0, 0]
    k = [seed & mask, (seed >> 32) & mask]
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0], c[1], c[2], c[3]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) of 24 bits that depends on the seed and the position alone."""
    return (philox(seed, position)[0] >> 8) * 2.0**-24
