"""Operations on single elements and those that move them: every device against the contract and the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest

from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops, Tensor
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from tests.engine.kernels.cases import golden, same_bits
from tests.engine.kernels.test_native import runnable

X, Y = (np.random.default_rng(seed).standard_normal((5, 60), np.float32) * np.float32(4) for seed in (1, 2))
NARROW = X[:, :4].copy()
W, B = X[0], Y[1]

OPERATIONS: dict[str, Callable[[Ops], Tensor]] = {
    "layer_norm": lambda ops: ops.layer_norm(ops.tensor(X), ops.vector(W), ops.vector(B), 1e-5),
    "add": lambda ops: ops.add(ops.tensor(X), ops.tensor(Y)),
    "scaled": lambda ops: ops.scaled(ops.tensor(X), 0.3),
    "pick": lambda ops: ops.pick(ops.tensor(X), 4, 3, 10),
    "spliced": lambda ops: ops.spliced(ops.tensor(X), ops.tensor(NARROW), 2),
    "folded": lambda ops: ops.folded(ops.rows(ops.tensor(X), 1, 5), 2),
    "joined": lambda ops: ops.joined([ops.tensor(X), ops.rows(ops.tensor(Y), 2, 4)]),
    **{
        f"activate {name}": lambda ops, name=name: ops.activate(ops.tensor(X), name)
        for name in ("silu", "gelu_tanh", "gelu_erf", "sigmoid", "relu_squared")
    },
    **{
        f"gate {name} {x.shape[1]}": lambda ops, name=name, x=x: ops.gate(ops.tensor(x), ops.tensor(Y), name)
        for name in ("silu", "sigmoid", "gelu_tanh", "swiglu_clamped")
        for x in (X, NARROW)
    },
}


@pytest.fixture(params=runnable())
def native(request: pytest.FixtureRequest) -> Iterator[NativeOps]:
    with closing(NativeOps(2, request.param)) as made:
        yield made


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_library_gives_the_bits_of_the_plain_twin(native: NativeOps, name: str) -> None:
    plain = PlainOps()
    assert same_bits(native.host(OPERATIONS[name](native)), plain.host(OPERATIONS[name](plain)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_plain_twin_gives_what_the_reference_gives(name: str) -> None:
    plain, judge = PlainOps(), ReferenceOps("float64")
    np.testing.assert_allclose(
        plain.host(OPERATIONS[name](plain)), judge.host(OPERATIONS[name](judge)), rtol=2e-6, atol=2e-6
    )


def test_moves_take_what_they_say() -> None:
    ops = PlainOps()
    x = ops.tensor(np.arange(12, dtype=np.float32).reshape(2, 6))
    y = ops.tensor(-np.ones((2, 2), np.float32))
    assert ops.host(ops.pick(x, 2, 1, 3)).tolist() == [[1, 2, 4, 5], [7, 8, 10, 11]]
    assert ops.host(ops.spliced(x, y, 2)).tolist() == [[0, 1, 2, -1, 3, 4, 5, -1], [6, 7, 8, -1, 9, 10, 11, -1]]
    assert ops.host(ops.folded(x, 2)).tolist() == [list(range(12))]


NORMS = [case for case in golden() if case.startswith("layer_norm")]


@pytest.mark.parametrize("case", NORMS)
def test_a_layer_norm_gives_the_frozen_bits(native: NativeOps, case: str) -> None:
    inputs, expected = golden()[case]
    made = native.layer_norm(native.tensor(inputs["x"]), native.vector(inputs["w"]), native.vector(inputs["b"]), 1e-5)
    assert same_bits(native.host(made), expected["out"])


def test_a_clamped_swiglu_gives_the_frozen_bits(native: NativeOps) -> None:
    inputs, expected = golden()["function/swiglu_clamped"]
    gate, up = (native.tensor(inputs[name].reshape(1, -1)) for name in ("gate", "up"))
    made = native.host(native.gate(gate, up, "swiglu_clamped"))
    assert same_bits(made.reshape(expected["out"].shape), expected["out"])
