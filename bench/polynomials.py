#!/usr/bin/env python3
"""Fit the contract's polynomials and measure them: prints float32 coefficients and each function's largest error.

Minimax fits by iteratively reweighted least squares (Lawson's algorithm) on a dense Chebyshev grid in float64, rounded
to float32 once. The errors are those of `engine.kernels.plain.functions` as it stands, over a dense sweep of float32
inputs against float64.

    python bench/polynomials.py
"""

from __future__ import annotations

import math

import numpy as np

from engine.kernels.plain import functions


def minimax(target, weight, low: float, high: float, degree: int, rounds: int = 200) -> np.ndarray:
    """Coefficients, lowest power first, of the polynomial whose weighted error is evened out over [low, high]."""
    nodes = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.linspace(0, math.pi, 2001))
    powers = np.vander(nodes, degree + 1, increasing=True)
    values, weights = target(nodes), weight(nodes)
    lawson = np.ones_like(nodes)
    for _ in range(rounds):
        scale = np.sqrt(lawson) * weights
        coefficients = np.linalg.lstsq(powers * scale[:, None], values * scale, rcond=None)[0]
        error = np.abs((powers @ coefficients - values) * weights)
        lawson *= error
        lawson /= lawson.sum()
    return coefficients


def series_quotient(function, leading, power: int, x: np.ndarray) -> np.ndarray:
    """(function(x) − leading(x)) / x^power, through 50-digit arithmetic, since it cancels near zero."""
    import mpmath

    with mpmath.workdps(50):
        return np.array(
            [
                float((function(mpmath.mpf(v)) - leading(mpmath.mpf(v))) / mpmath.mpf(v) ** power)
                if abs(v) > 1e-9
                else math.nan
                for v in x
            ]
        )


def fits() -> dict[str, np.ndarray]:
    import mpmath

    def finite(values):
        return np.nan_to_num(values, nan=float(np.nanmean(values)))

    half = 0.5 * math.log(2)
    out = {
        "EXP": minimax(
            lambda r: finite(series_quotient(mpmath.exp, lambda v: 1 + v, 2, r)),
            lambda r: r * r * np.exp(-r) * (np.abs(r) > 1e-9),
            -half,
            half,
            4,
        ),
        "LOG": minimax(
            lambda f: finite(series_quotient(lambda v: mpmath.log(1 + v), lambda v: v - v * v / 2, 3, f)),
            lambda f: np.abs(f**2) * (np.abs(f) > 1e-9),
            math.sqrt(0.5) - 1,
            math.sqrt(2) - 1,
            8,
        ),
    }

    def odd(function, limit, degree):
        # function(x) = x + x·z·P(z), z = x²
        def target(z):
            x = np.sqrt(np.maximum(z, 1e-12))
            return finite(series_quotient(function, lambda v: v, 3, x))

        return minimax(target, lambda z: z, 1e-12, limit * limit, degree)

    out["TANH"] = odd(mpmath.tanh, 0.625, 4)
    out["ERF_SMALL"] = minimax(
        lambda z: np.array([float(mpmath.erf(math.sqrt(v)) / math.sqrt(v)) for v in z]), np.ones_like, 1e-9, 1.0, 6
    )
    out["ERF_LARGE"] = minimax(
        lambda a: np.array([float(-mpmath.log(mpmath.erfc(v))) for v in a]),
        lambda a: np.exp([-float(-mpmath.log(mpmath.erfc(v))) for v in a]),
        1.0,
        4.0,
        7,
    )
    return out


def ulp_error(function, judge, low: float, high: float) -> float:
    x = np.linspace(low, high, 2_000_001).astype(np.float32)
    exact = judge(x.astype(np.float64))
    ulp = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(function(x).astype(np.float64) - exact) / ulp))


def main() -> None:
    for name, coefficients in fits().items():
        print(name, ", ".join(float(np.float32(c)).hex() for c in coefficients))
    erf = np.vectorize(math.erf)
    for name, judge, low, high in (
        ("exp", np.exp, -87, 88.7),
        ("tanh", np.tanh, -10, 10),
        ("log", np.log, 1e-6, 50),
        ("erf", erf, -5, 5),
    ):
        print(f"{name}: at most {ulp_error(getattr(functions, name), judge, low, high):.2f} ulp on [{low}, {high}]")


if __name__ == "__main__":
    main()
