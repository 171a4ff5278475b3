"""The golden cases: for each operation of CONTRACT.md its inputs, and the plain implementation that judges it.

`make_golden.py` draws the inputs and freezes them with the outputs; the tests read both from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from engine import weights
from engine.kernels.ops import AttentionSpec, Rotary
from engine.kernels.plain import attention, experts, functions, linear, normalise, recurrent

GOLDEN = Path(__file__).parent / "golden"
Arrays = dict[str, np.ndarray]
FUNCTIONS = ("exp", "log", "tanh", "erf", "sigmoid", "silu", "softplus", "gelu_tanh", "gelu_erf", "relu_squared")
PACKED = tuple(name for name, encoding in weights.ENCODINGS.items() if weights.is_packed(encoding))
LATER = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "NVFP4", "Q1_0")
"""Encodings that are drawn at the end, since they joined when the vectors before were frozen."""
COLUMNS = {32: 352, 64: 320, 128: 384, 256: 768}
"""Width of a linear case by the encoding's block."""
FLOATS = ("F32", "F16", "BF16")
ATTENTION = {
    "causal": {"n_heads": 6, "n_kv": 2, "key": 16, "value": 16, "n": 5, "start": 130, "kind": "f32"},
    "f16": {"n_heads": 3, "n_kv": 3, "key": 24, "value": 40, "n": 3, "start": 62, "kind": "f16"},
    "q8_0": {"n_heads": 4, "n_kv": 1, "key": 32, "value": 32, "n": 2, "start": 70, "kind": "q8_0"},
    "window": {"n_heads": 4, "n_kv": 2, "key": 16, "value": 16, "n": 9, "start": 150, "kind": "f32", "window": 20},
    "softcap": {"n_heads": 2, "n_kv": 2, "key": 13, "value": 7, "n": 3, "start": 66, "kind": "f32", "softcap": 5.0},
    "sinks": {"n_heads": 2, "n_kv": 1, "key": 16, "value": 16, "n": 3, "start": 64, "kind": "f32", "sinks": True},
    "first": {"n_heads": 2, "n_kv": 1, "key": 16, "value": 16, "n": 1, "start": 0, "kind": "f32"},
    "full": {"n_heads": 2, "n_kv": 2, "key": 16, "value": 16, "n": 70, "start": 0, "kind": "f32", "causal": False},
}
INF, NAN = np.float32(np.inf), np.float32(np.nan)
SPECIAL = np.array(
    [
        *(0, -0.0, 1, -1, INF, -INF, NAN, 1e-45, -1e-40, 1.1754944e-38, 3.4e38, -3.4e38),
        *(88.72283, 88.7229, -87.33654, -87.4, 0.625, -0.62499994, 0.99999994, 1.0000001),
        *(4.0, 4.0000005, 20.0, 20.000002, 0.70710677, 0.70710683),
    ],
    np.float32,
)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, all NaNs being one value."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    return bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def activations(rng: np.random.Generator, n: int, columns: int) -> np.ndarray:
    """Ordinary rows; the last ones hold a zero block, a tiny one, subnormals, and where wide enough Inf and NaN."""
    x = rng.standard_normal((n, columns), np.float32)
    x[:, ::7] *= np.float32(20)
    x[-1, : min(32, columns)] = 0
    if n > 1 and columns >= 96:
        x[-2, :32] = np.float32(1e-31)
        x[-2, 32:64] = np.float32(1e-42)
        x[-3, 5], x[-4, 40] = NAN, -INF
    return x


def packed_rows(rng: np.random.Generator, name: str, rows: int, columns: int) -> np.ndarray:
    """Random blocks of moderate size; the last row is any bytes at all."""
    encoding = weights.get(name)
    n_blocks = columns // encoding.block
    out = rng.integers(0, 256, (rows, n_blocks, encoding.block_bytes), np.uint8)
    for row in range(rows - 1):
        for block in range(n_blocks):
            while True:
                top = np.abs(encoding.decode(out[row : row + 1, block])).max()
                if np.isfinite(top) and 1e-3 < top < 50:
                    break
                out[row, block] = rng.integers(0, 256, encoding.block_bytes, np.uint8)
    return out.reshape(rows, -1)


def linear_case(rng: np.random.Generator, name: str) -> tuple[str, Arrays]:
    """Case and inputs of a packed encoding's linear."""
    columns = COLUMNS[weights.get(name).block]
    return f"linear/{name}", {"x": activations(rng, 6, columns), "w": packed_rows(rng, name, 11, columns)}


def draw(rng: np.random.Generator) -> Iterator[tuple[str, Arrays]]:
    """Every case's inputs."""
    normal = rng.standard_normal
    wide = np.concatenate([SPECIAL, (normal(177) * 10.0 ** rng.integers(-4, 2, 177)).astype(np.float32)])
    for name in FUNCTIONS:
        yield f"function/{name}", {"x": wide}
    yield "function/softcap", {"x": wide}
    yield "function/swiglu_clamped", {"gate": wide, "up": rng.permutation(wide)}
    yield (
        "uniform",
        {"seed": rng.integers(0, 2**63, 9), "position": np.array([0, 1, 2, 63, 64, 2**32 - 1, 2**32, 2**40, 7])},
    )
    yield "quantise", {"x": activations(rng, 6, 160)}
    for name in PACKED:
        if name not in LATER:
            yield linear_case(rng, name)
    for name in FLOATS:
        values = normal((11, 37), np.float32)
        raw = {"F32": values, "F16": values.astype(np.float16), "BF16": values.view(np.uint32).astype(np.uint32) >> 16}[
            name
        ]
        raw = raw.astype(np.uint16) if name == "BF16" else raw
        yield f"linear/{name}", {"x": activations(rng, 6, 37), "w": np.ascontiguousarray(raw).view(np.uint8)}
    codes = rng.integers(-1, 2, (5, 96)).astype(np.int8)
    yield "bitnet", {"x": activations(rng, 6, 96), "codes": codes, "scale": normal(5, np.float32)}
    for width in (37, 64):
        x = activations(rng, 5, width)
        yield f"rms_norm/{width}", {"x": x, "w": normal(width, np.float32)}
        yield f"layer_norm/{width}", {"x": x, "w": normal(width, np.float32), "b": normal(width, np.float32)}
        yield f"l2_norm/{width}", {"x": x}
        yield f"softmax/{width}", {"x": x}
    angle = np.outer(np.arange(40), 10000.0 ** (-np.arange(6) / 6))
    tables = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    for style in ("interleaved", "halves"):
        yield f"rotary/{style}", {"x": normal((3, 4 * 16), np.float32), **tables}
    for name, c in ATTENTION.items():
        length = c["start"] + c["n"]
        yield (
            f"attention/{name}",
            {
                "q": normal((c["n"], c["n_heads"], c["key"]), np.float32) * np.float32(3),
                "k": normal((length, c["n_kv"], c["key"]), np.float32),
                "v": normal((length, c["n_kv"], c["value"]), np.float32),
                "sinks": normal(c["n_heads"], np.float32),
            },
        )
    store = activations(rng, 4, 96) * np.float32(0.1)
    yield "cache/f16", {"x": store}
    yield "cache/q8_0", {"x": store}
    tied = np.round(rng.random((5, 8), np.float32), 1).astype(np.float32)
    yield "route", {"scores": tied, "bias": np.round(normal(8), 1).astype(np.float32)}
    yield (
        "combine",
        {
            "outputs": normal((3, 4, 10), np.float32),
            "weights": rng.random((4, 3), np.float32),
            "shared": normal((4, 10), np.float32),
        },
    )
    yield (
        "convolution",
        {"x": normal((5, 11), np.float32), "w": normal((11, 4), np.float32), "state": normal((3, 11), np.float32)},
    )
    yield (
        "gated_delta",
        {
            **{
                "q": normal((4, 2, 8), np.float32),
                "k": normal((4, 2, 8), np.float32),
                "v": normal((4, 2, 6), np.float32),
            },
            **{"g": -rng.random((4, 2), np.float32), "beta": rng.random((4, 2), np.float32)},
            "state": normal((2, 8, 6), np.float32),
        },
    )
    for name in LATER:
        yield linear_case(rng, name)


def _attention(name: str, a: Arrays) -> Arrays:
    c = ATTENTION[name]
    spec = AttentionSpec(c["n_heads"], c["key"] ** -0.5, c.get("window"), c.get("softcap"))
    k, v = (attention.store_round(a[key], c["kind"]) for key in ("k", "v"))
    sinks = a["sinks"] if c.get("sinks") else None
    until = None if c.get("causal", True) else [c["start"] + c["n"]] * c["n"]
    return {"out": attention.attention(a["q"], k, v, spec, c["start"], sinks, until)}


def _linear(name: str, a: Arrays) -> Arrays:
    encoding = weights.get(name)
    if weights.is_packed(encoding):
        return {"out": linear.linear_packed(linear.quantise(a["x"]), encoding.units(a["w"]))}
    return {"out": linear.linear_float(a["x"], encoding.decode(a["w"]))}


def _quantise(a: Arrays) -> Arrays:
    made = linear.quantise(a["x"])
    return {"q": made.q, "s": made.s}


def _route(a: Arrays) -> Arrays:
    first = experts.route(a["scores"], 3, normalise=True, scale=2.5)
    grouped = experts.route(a["scores"], 2, bias=a["bias"], groups=4, groups_kept=2)
    return {"ids": first.ids, "weights": first.weights, "grouped_ids": grouped.ids, "grouped_weights": grouped.weights}


def _pair(names: tuple[str, str], values: tuple[np.ndarray, np.ndarray]) -> Arrays:
    return dict(zip(names, values, strict=True))


def run(case: str, a: Arrays) -> Arrays:
    """The plain implementation's outputs for a case's inputs."""
    kind, _, name = case.partition("/")
    table: dict[str, Callable[[], Arrays]] = {
        "uniform": lambda: {
            "u": np.array(
                [functions.uniform(int(s), int(p)) for s, p in zip(a["seed"], a["position"], strict=True)], np.float32
            )
        },
        "quantise": lambda: _quantise(a),
        "linear": lambda: _linear(name, a),
        "bitnet": lambda: {"out": linear.linear_bitnet(a["x"], a["codes"], a["scale"])},
        "rms_norm": lambda: {"out": normalise.rms_norm(a["x"], a["w"], 1e-5)},
        "layer_norm": lambda: {"out": normalise.layer_norm(a["x"], a["w"], a["b"], 1e-5)},
        "l2_norm": lambda: {"out": normalise.l2_norm(a["x"], 1e-6)},
        "softmax": lambda: {"out": normalise.softmax(a["x"])},
        "rotary": lambda: {"out": normalise.rotary(a["x"], 4, Rotary(a["cos"], a["sin"], name), 7)},  # type: ignore[arg-type]
        "attention": lambda: _attention(name, a),
        "cache": lambda: {"out": attention.store_round(a["x"], name)},
        "route": lambda: _route(a),
        "combine": lambda: {"out": experts.combine(list(a["outputs"]), a["weights"], a["shared"])},
        "convolution": lambda: _pair(("out", "state"), recurrent.causal_convolution(a["x"], a["w"], a["state"])),
        "gated_delta": lambda: _pair(
            ("out", "state"), recurrent.gated_delta(a["q"], a["k"], a["v"], a["g"], a["beta"], a["state"])
        ),
    }
    if kind == "function":
        if name == "softcap":
            return {"out": functions.softcap(a["x"], 30.0)}
        if name == "swiglu_clamped":
            return {"out": functions.swiglu_clamped(a["gate"], a["up"], 1.702, 7.0)}
        return {"out": getattr(functions, name)(a["x"])}
    return table[kind]()


def golden() -> dict[str, tuple[Arrays, Arrays]]:
    """The frozen vectors: inputs and outputs of every case."""
    cases: dict[str, tuple[Arrays, Arrays]] = {}
    with np.load(GOLDEN / "contract.npz") as archive:
        for key in archive.files:
            case, side, name = key.rsplit(":", 2)
            cases.setdefault(case, ({}, {}))[side == "out"][name] = archive[key]
    return cases
