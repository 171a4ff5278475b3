"""Mixtures of experts: every device against the contract, the reference, and the rules written out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from hashlib import sha256

import numpy as np
import pytest

from engine import weights
from engine.errors import NumericsError
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops, Router, Stack, Weight
from engine.kernels.plain import PlainOps, experts
from engine.kernels.reference import ReferenceOps
from engine.kernels.watch import Watch
from tests.engine.devices import DEVICES
from tests.engine.kernels.cases import golden, packed_rows, same_bits
from tests.engine.kernels.test_native import runnable

N_EXPERTS, HIDDEN, WIDTH = 12, 96, 40
ROUTERS = {
    "softmax": Router(3),
    "softmax of the chosen": Router(4, normalise=True),
    "sigmoid": Router(5, "sigmoid", normalise=True, scale=2.5),
    "groups by their best": Router(3, "softmax", 4, 2, 1, scale=16.0),
    "groups by their best two": Router(4, "sigmoid", 4, 2, 2, True, 2.5),
    "groups of one": Router(2, "softmax", N_EXPERTS, 3, 2),
    "all": Router(N_EXPERTS),
    "one": Router(1, "sigmoid"),
}


@pytest.fixture(params=[(isa, threads) for isa in runnable() for threads in (1, 2, 3)], ids=lambda p: f"{p[0]}-{p[1]}")
def native(request: pytest.FixtureRequest) -> Iterator[NativeOps]:
    isa, threads = request.param
    with closing(NativeOps(threads, isa)) as made:
        yield made


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def whole(encoding: str, columns: int) -> int:
    """So many columns, or as many more as make whole blocks."""
    block = weights.get(encoding).block
    return -(-columns // block) * block


@cache
def stack(seed: int, encoding: str, rows: int, columns: int) -> Stack:
    """Experts of moderate size, another one between any two."""
    if encoding == "F32":
        data = (floats(seed, 2 * N_EXPERTS, rows, columns) / np.float32(8)).view(np.uint8)
    else:
        draws = np.random.default_rng(seed)
        few = packed_rows(draws, encoding, 20, columns)[:-1]
        data = few[draws.integers(0, len(few), (2 * N_EXPERTS, rows))]
    return Stack(f"blk.1.ffn_{encoding}_exps.weight", encoding, N_EXPERTS, rows, columns, data[::2])


def mixture(ops: Ops, x: np.ndarray, logits: np.ndarray, kinds: tuple[str, str, str], biased: bool) -> np.ndarray:
    """With biases the experts have scales, too, one of them of nothing."""
    width = whole(kinds[2], WIDTH)
    stacks = [
        stack(seed, kind, *shape)
        for seed, (kind, shape) in enumerate(
            zip(kinds, ((width, x.shape[1]), (width, x.shape[1]), (50, width)), strict=True)
        )
    ]
    biases = {}
    if biased:
        scales = np.abs(floats(8, N_EXPERTS)) + np.float32(0.5)
        scales[3] = 0
        stacks = [replace(of, scales=scales) for of in stacks]
        for name, of in zip(("gate_bias", "up_bias", "down_bias"), stacks, strict=True):
            biases[name] = ops.vector(floats(7, N_EXPERTS * of.rows))
    routing = ops.route(ops.tensor(logits), Router(4, normalise=True))
    activation = "swiglu_clamped" if biased else "silu"
    return np.array(ops.host(ops.experts(ops.tensor(x), routing, *map(ops.stack, stacks), activation, **biases)))


def chosen(
    ops: Ops, logits: np.ndarray, router: Router, bias: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and weights by ascending id, whatever the device keeps."""
    routing = ops.route(ops.tensor(logits), router, None if bias is None else ops.vector(bias))
    if isinstance(ops, NativeOps):
        return routing.ids.array().view(np.int32).copy(), routing.weights.array().copy()
    ids, shares = np.asarray(routing.ids), np.asarray(routing.weights, np.float32)
    order = np.argsort(ids, axis=-1)
    return np.take_along_axis(ids, order, -1).astype(np.int32), np.take_along_axis(shares, order, -1)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", ROUTERS)
def test_every_library_routes_as_the_plain_twin(native: NativeOps, name: str, biased: bool) -> None:
    bias = floats(5, N_EXPERTS) if biased else None
    for n, logits in ((33, floats(4, 33, N_EXPERTS) * 3), (1, floats(6, 1, N_EXPERTS))):
        for values in (logits, np.round(logits)):  # with ties
            expected = chosen(PlainOps(), values, ROUTERS[name], bias)
            made = chosen(native, values, ROUTERS[name], bias)
            assert (made[0] == expected[0]).all(), n
            assert same_bits(made[1], expected[1]), n


@pytest.mark.parametrize("name", ROUTERS)
def test_the_plain_twin_routes_as_the_reference(name: str) -> None:
    logits, bias = floats(4, 50, N_EXPERTS) * 3, floats(5, N_EXPERTS)
    ids, shares = chosen(PlainOps(), logits, ROUTERS[name], bias)
    judged_ids, judged = chosen(ReferenceOps("float64"), logits, ROUTERS[name], bias)
    assert (ids == judged_ids).all()
    np.testing.assert_allclose(shares, judged, rtol=2e-6)


def test_scores_of_a_sigmoid_choose_as_the_frozen_vectors(native: NativeOps) -> None:
    """A row of frozen scores, told apart by logits of the same order; ties stay ties."""
    inputs, expected = golden()["route"]
    logits = np.round(inputs["scores"] * 10).astype(np.float32) - 5
    assert (chosen(native, logits, Router(3, "sigmoid"))[0] == expected["ids"]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_ties_go_to_the_lower_expert_and_group(device: str) -> None:
    with closing(DEVICES[device]()) as ops:
        flat = np.zeros((2, 8), np.float32)
        assert chosen(ops, flat, Router(3))[0].tolist() == [[0, 1, 2]] * 2
        flat[1, 7] = 1
        assert chosen(ops, flat, Router(3, groups=4, groups_kept=2))[0].tolist() == [[0, 1, 2], [0, 1, 7]]


@pytest.mark.parametrize("device", DEVICES)
def test_the_bias_chooses_but_does_not_weigh(device: str) -> None:
    with closing(DEVICES[device]()) as ops:
        logits = np.zeros((1, 4), np.float32)
        ids, shares = chosen(ops, logits, Router(2, "sigmoid", scale=3.0), np.array([0, 0, 5, 9], np.float32))
        assert ids.tolist() == [[2, 3]]
        assert shares.tolist() == [[1.5, 1.5]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_a_group_counts_by_so_many_of_its_best(device: str, scores: str) -> None:
    with closing(DEVICES[device]()) as ops:
        logits = np.array([[2, -9, 1, 1, -9, -9]], np.float32)
        one, two = (Router(1, scores, 3, 1, marks) for marks in (1, 2))
        assert chosen(ops, logits, one)[0].tolist() == [[0]]
        assert chosen(ops, logits, two)[0].tolist() == [[2]] if scores == "sigmoid" else [[0]]


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_choose_experts_that_exist(native: NativeOps, name: str, bad: float) -> None:
    router = ROUTERS[name]
    logits = floats(4, 4, N_EXPERTS)
    logits[1, 5] = logits[2, ::2] = logits[3] = bad
    for bias in (None, floats(5, N_EXPERTS), np.full(N_EXPERTS, np.nan, np.float32)):
        ids, shares = chosen(native, logits, router, bias)
        assert ((ids >= 0) & (ids < N_EXPERTS)).all() and (np.diff(ids, axis=1) > 0).all()
        expected = chosen(PlainOps(), logits, router, bias)
        assert (ids == expected[0]).all() and same_bits(shares, expected[1])
        assert not np.isnan(bad) or np.isnan(shares[1:]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_a_router_that_gives_nan_gives_nan(device: str) -> None:
    with closing(DEVICES[device]()) as ops:
        x, logits = floats(8, 3, HIDDEN), floats(9, 3, N_EXPERTS)
        logits[1, 4] = np.nan
        made = mixture(ops, x, logits, ("F32",) * 3, False)
        assert np.isnan(made[1]).all() and np.isfinite(made[[0, 2]]).all()


KINDS = (
    ("Q8_0", "Q8_0", "Q8_0"),
    ("Q4_K", "Q4_K", "Q6_K"),
    ("MXFP4", "MXFP4", "MXFP4"),
    ("F32", "F32", "F32"),
    ("Q4_0", "F32", "Q5_1"),
)


@cache
def twin(kinds: tuple[str, str, str], biased: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, logits, and what the plain twin makes of them."""
    columns = max(whole(kind, HIDDEN) for kind in kinds[:2])
    x, logits = floats(8, 40, columns), floats(9, 40, N_EXPERTS)
    logits[:, 3] += 4  # many rows for one expert, few for others
    return x, logits, mixture(PlainOps(), x, logits, kinds, biased)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_every_library_gives_the_bits_of_the_plain_twin_for_any_number_of_rows(
    native: NativeOps, kinds: tuple[str, str, str], biased: bool
) -> None:
    x, logits, expected = twin(kinds, biased)
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 40):
        made = mixture(native, x[:n], logits[:n], kinds, biased)
        assert same_bits(made, expected[:n]), n


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_the_plain_twin_gives_what_the_reference_gives(kinds: tuple[str, str, str], biased: bool) -> None:
    x, logits, made = twin(kinds, biased)
    judged = mixture(ReferenceOps("float64"), x, logits, kinds, biased)
    assert np.abs(made - judged).max() <= 1e-3 * np.abs(judged).max()


def test_a_mixture_is_the_sum_written_out_in_the_contract() -> None:
    ops = PlainOps()
    x, logits = floats(8, 5, HIDDEN), floats(9, 5, N_EXPERTS)
    gate, up, down = (
        ops.stack(stack(seed, "F32", *shape))
        for seed, shape in ((1, (WIDTH, HIDDEN)), (2, (WIDTH, HIDDEN)), (3, (50, WIDTH)))
    )
    ids, shares = chosen(ops, logits, Router(3))
    made = ops.experts(x, ops.route(logits, Router(3)), gate, up, down)
    for row in range(5):
        outputs = [
            ops.linear(ops.gated(x[row : row + 1], gate.matrices[e], up.matrices[e]), down.matrices[e])
            for e in ids[row]
        ]
        assert same_bits(made[row : row + 1], experts.combine(outputs, shares[row : row + 1]))


def steady(*shape: int) -> np.ndarray:
    """Numbers that no library draws."""
    at = np.arange(np.prod(shape), dtype=np.int64)
    return ((at * 7919 % 1009 - 504) / 256).astype(np.float32).reshape(shape)


def test_a_mixture_gives_the_frozen_bits(native: NativeOps) -> None:
    parts = ((6, 16, 24), (6, 16, 24), (6, 20, 16))
    for ops in (PlainOps(), native):
        gate, up, down = (ops.stack(Stack("w", "F32", *shape, steady(*shape).view(np.uint8))) for shape in parts)
        routing = ops.route(ops.tensor(steady(7, 6)), Router(2, "sigmoid", 3, 2, 2, True, 2.5), ops.vector(steady(6)))
        made = ops.host(
            ops.experts(ops.tensor(steady(7, 24)), routing, gate, up, down, up_bias=ops.vector(steady(6 * 16)))
        )
        assert sha256(made.tobytes()).hexdigest()[:16] == "ccf0fa8fea420c81"


def test_a_mixture_is_replayed_for_other_rows(native: NativeOps) -> None:
    table = floats(11, 30, HIDDEN) / np.float32(4)
    gate, up, down = (stack(1, "F32", WIDTH, HIDDEN), stack(2, "Q8_0", WIDTH, HIDDEN), stack(3, "F32", HIDDEN, WIDTH))
    router = floats(12, N_EXPERTS, HIDDEN).view(np.uint8)

    def forward(ops: Ops):
        embedding = ops.matrix(Weight("e", "F32", 30, HIDDEN, table.view(np.uint8)))
        chooser = ops.matrix(Weight("r", "F32", N_EXPERTS, HIDDEN, router))
        handles = [ops.stack(part) for part in (gate, up, down)]

        def run(tokens, start):
            x = ops.embed(embedding, tokens)
            return ops.experts(x, ops.route(ops.linear(x, chooser), Router(3)), *handles)

        return run

    plain = forward(PlainOps())
    recorded = native.recorded(forward(native))
    for n in (1, 5, 16):
        for first in range(6):
            tokens = [(first * 11 + i * 7) % 30 for i in range(n)]
            assert same_bits(native.host(recorded(tokens, 0)), plain(tokens, 0)), (n, first)


@pytest.mark.parametrize("device", DEVICES)
def test_a_watched_mixture_is_named(device: str) -> None:
    with closing(DEVICES[device]()) as ops:
        watch = Watch(ops, [], 4)
        x, logits = floats(8, 3, HIDDEN), floats(9, 3, N_EXPERTS)
        expected = mixture(ops, x, logits, ("F32",) * 3, True)
        assert same_bits(mixture(watch, x, logits, ("F32",) * 3, True), expected)
        x[2] = np.inf
        with pytest.raises(NumericsError, match=r"layer 1 \(blk\.1\.ffn_F32_exps\.weight, .*first at position 6"):
            mixture(watch, x, logits, ("F32",) * 3, False)
