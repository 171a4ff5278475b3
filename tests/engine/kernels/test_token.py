"""Activations that are rounded to int8, one scale a token, as BitNet is trained (CONTRACT.md, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from engine import weights
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.kernels.ternary import row_scales
from tests.engine.kernels.cases import activations, golden, same_bits
from tests.engine.kernels.test_contract import host, tensor
from tests.engine.kernels.test_native import runnable

TERNARY = ("TQ1_0", "TQ2_0")
DEVICES = ("plain", *((isa, threads) for isa in runnable() for threads in (1, 3)))
BLOCK = 256


@pytest.fixture(params=DEVICES, ids=lambda device: device if isinstance(device, str) else "-".join(map(str, device)))
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    if request.param == "plain":
        yield PlainOps()
        return
    isa, threads = request.param
    with closing(NativeOps(threads, isa)) as made:
        yield made


def packed(encoding: str, values: np.ndarray) -> np.ndarray:
    made: np.ndarray = gguf.quantize(np.ascontiguousarray(values, np.float32), GGMLQuantizationType[encoding])
    return made.view(np.uint8)


def token_weight(encoding: str, data: np.ndarray, scale: float | None = None) -> Weight:
    form = weights.get(encoding)
    columns = data.shape[1] // form.block_bytes * form.block
    return Weight("w", encoding, len(data), columns, data, "token", scale)


def ternary(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """-d, 0 and d, another d for each row, one block of zeros."""
    codes = rng.integers(-1, 2, (rows, columns)).astype(np.float32)
    codes[rows // 2, :BLOCK] = 0
    return codes * rng.uniform(0.01, 2, (rows, 1)).astype(np.float16).astype(np.float32)


def rows_of(rng: np.random.Generator, n: int, columns: int) -> np.ndarray:
    """Zeros, numbers that are small or large; of many, ordinary ones and at the end what is special."""
    x = activations(rng, max(n, 7), columns)
    x[0] = 0
    x[1] *= np.float32(1e-7)
    x[2] *= np.float32(1e30)
    return x[:n]


@pytest.mark.parametrize("encoding", TERNARY)
def test_ternary_weights_give_the_frozen_bits(ops: Ops, encoding: str) -> None:
    inputs, expected = golden()["bitnet"]
    codes, x = (np.pad(inputs[name], ((0, 0), (0, BLOCK - 96))) for name in ("codes", "x"))
    for n in (1, 3, len(x)):
        for row, scale in enumerate(inputs["scale"]):
            matrix = ops.matrix(token_weight(encoding, packed(encoding, codes[row : row + 1]), float(scale)))
            assert same_bits(host(ops, ops.linear(tensor(ops, x[:n]), matrix)), expected["out"][:n, row : row + 1])


@pytest.mark.parametrize("encoding", [*TERNARY, "F32", "F16", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("rows", [1, 7, 16, 33])
def test_every_library_gives_the_twins_bits_however_many_rows_run_together(ops: Ops, encoding: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    twin = PlainOps()
    for columns in (BLOCK, 3 * BLOCK):
        data = packed(encoding, ternary(rng, rows, columns))
        if encoding in TERNARY and rows > 1:  # a row of any codes at all
            codes = data[-1].reshape(columns // BLOCK, -1)[:, :-2]
            codes[:] = rng.integers(0, 256, codes.shape, np.uint8)
        weight = token_weight(encoding, data, 0.37)
        x = rows_of(rng, 17, columns)
        bias, residual = rng.standard_normal(rows, np.float32), rng.standard_normal((17, rows), np.float32)
        whole = twin.linear(x, twin.matrix(weight), bias=bias, residual=residual)
        assert np.isnan(whole).any() and np.isfinite(whole).any()
        ours = ops.matrix(weight)
        for part in (slice(0, 17), slice(0, 1), slice(3, 5), slice(6, 11), slice(13, 16)):
            made = ops.linear(tensor(ops, x[part]), ours, bias=ops.vector(bias), residual=tensor(ops, residual[part]))
            assert same_bits(host(ops, made), whole[part]), (columns, part)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_weights_that_take_their_input_in_different_ways_share_an_input(ops: Ops, n: int) -> None:
    rng = np.random.default_rng(n)
    values = ternary(rng, 9, 2 * BLOCK)
    x = rows_of(rng, n, 2 * BLOCK)
    twin = PlainOps()
    made = [token_weight(encoding, packed(encoding, values)) for encoding in ("TQ2_0", "TQ1_0", "F16", "Q8_0")]
    made.append(Weight("w", "Q8_0", 9, 2 * BLOCK, made[-1].data))
    ours, judges = [ops.matrix(weight) for weight in made], [twin.matrix(weight) for weight in made]
    for out, judge in zip(ops.linears(tensor(ops, x), ours), judges, strict=True):
        assert same_bits(host(ops, out), twin.linear(x, judge))
    for gate, up in ((0, 0), (0, 1), (0, 2), (2, 2), (2, 3), (4, 0)):
        out = ops.gated(tensor(ops, x), ours[gate], ours[up], "relu_squared")
        assert same_bits(host(ops, out), twin.gated(x, judges[gate], judges[up], "relu_squared")), (gate, up)


def test_rows_of_any_width_are_rounded(ops: Ops) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 37), np.float32)
    weight = token_weight("F32", values.view(np.uint8))
    x = rows_of(rng, 6, 37)
    twin = PlainOps()
    assert same_bits(host(ops, ops.linear(tensor(ops, x), ops.matrix(weight))), twin.linear(x, twin.matrix(weight)))


@pytest.mark.parametrize("encoding", [*TERNARY, "F32", "Q8_0"])
def test_results_are_those_of_exact_arithmetic_over_rounded_tokens(encoding: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((8, BLOCK), np.float32)
    weight = token_weight(encoding, packed(encoding, ternary(rng, 6, BLOCK)), 1.7)
    exact, twin = ReferenceOps("float64"), PlainOps()
    truth = host(exact, exact.linear(tensor(exact, x), exact.matrix(weight)))
    unrounded = x.astype(np.float64) @ weights.get(encoding).decode(weight.data).astype(np.float64).T * 1.7
    made = twin.linear(x, twin.matrix(weight))
    assert np.abs(made - truth).max() < 1e-4 * np.abs(truth).max()
    assert np.abs(unrounded - truth).max() > 2e-3 * np.abs(truth).max()


@pytest.mark.parametrize("encoding", TERNARY)
def test_a_row_has_one_scale_where_its_blocks_agree_but_for_zeros(encoding: str) -> None:
    values = ternary(np.random.default_rng(2), 5, 3 * BLOCK)
    weight = token_weight(encoding, packed(encoding, values))
    scales = row_scales(weight)
    assert scales is not None and np.array_equal(scales, np.abs(values).max(axis=1))
    assert row_scales(Weight("w", encoding, 5, 3 * BLOCK, weight.data)) is None
    values[3, -BLOCK:] *= 2
    assert row_scales(token_weight(encoding, packed(encoding, values))) is None
    nothing = row_scales(token_weight(encoding, packed(encoding, np.zeros((2, BLOCK)))))
    assert nothing is not None and not nothing.any()


@pytest.mark.parametrize("encoding", TERNARY)
def test_a_scale_of_zero_does_not_hide_codes(encoding: str) -> None:
    data = packed(encoding, np.ones((1, 2 * BLOCK)))
    size = weights.get(encoding).block_bytes
    data[0, size - 2 : size] = 0
    assert row_scales(token_weight(encoding, data)) is None
    x = np.ones((1, 2 * BLOCK), np.float32)
    twin = PlainOps()
    assert abs(twin.linear(x, twin.matrix(token_weight(encoding, data)))[0, 0] - BLOCK) < 0.1
