"""Weights that are lent window by window: the bits of those in memory, whatever the windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from engine import weights
from engine.errors import ModelFileError, UnsupportedModelError
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops, Router, Stack, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from tests.engine.kernels.cases import COLUMNS, activations, packed_rows, same_bits
from tests.engine.kernels.test_native import runnable
from tests.engine.kernels.test_token import BLOCK, packed, ternary, token_weight
from tests.lender import SIZES, ArrayLender

ROWS, MANY = 37, 40
COUNTS = (1, 5, MANY)
DEVICES: dict[str, Callable[[], Ops]] = {
    "plain": PlainOps,
    "reference": ReferenceOps,
    **{isa: lambda isa=isa, n=n: NativeOps(n, isa) for isa, n in zip(runnable(), (3, 1, 2), strict=False)},
}


@pytest.fixture(params=DEVICES)
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    with closing(DEVICES[request.param]()) as made:
        yield made


@pytest.fixture
def native() -> Iterator[NativeOps]:
    with closing(NativeOps(2)) as made:
        yield made


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def host(ops: Ops, x: object) -> np.ndarray:
    return np.array(ops.host(x))


@cache
def weight(encoding: str, seed: int = 0, rows: int = ROWS, columns: int | None = None) -> Weight:
    block = weights.get(encoding).block
    columns = columns or COLUMNS.get(block, 37)
    if block > 1:
        data = packed_rows(np.random.default_rng(seed), encoding, rows, columns)
    else:
        values = floats(seed, rows, columns)
        bits = {"F32": values, "F16": values.astype(np.float16), "BF16": values.view(np.uint16)[:, 1::2]}[encoding]
        data = np.ascontiguousarray(bits).view(np.uint8)
    return Weight(f"blk.0.{encoding}.weight", encoding, rows, columns, data)


@cache
def even(encoding: str, seed: int = 0) -> Weight:
    """Ternary codes with a scale for each row, to be multiplied with int8."""
    return token_weight(encoding, packed(encoding, ternary(np.random.default_rng(seed), ROWS, BLOCK * 3)), 0.37)


@cache
def uneven(encoding: str) -> Weight:
    """As `even`, but for one row far from the first."""
    data = even(encoding).data.copy()
    scales = data.reshape(ROWS, 3, -1)[:, :, -2:].view(np.float16)
    scales[23, 1] = 3
    return token_weight(encoding, data, 0.37)


WEIGHTS: dict[str, Callable[[], Weight]] = {
    **{name: lambda name=name: weight(name) for name in weights.ENCODINGS},
    "scaled Q4_0": lambda: replace(weight("Q4_0"), scale=0.7),
    "Q8_0 by token": lambda: replace(weight("Q8_0"), activations="token"),
    "even TQ1_0": lambda: even("TQ1_0"),
    "even TQ2_0": lambda: even("TQ2_0"),
    "uneven TQ2_0": lambda: uneven("TQ2_0"),
}


@cache
def rows_for(columns: int) -> np.ndarray:
    return activations(np.random.default_rng(columns), MANY, columns)


def linear(ops: Ops, weight: Weight, n: int, plainly: bool) -> np.ndarray:
    x, handle = ops.tensor(rows_for(weight.columns)[:n]), ops.matrix(weight)
    if plainly:
        return host(ops, ops.linear(x, handle))
    bias, residual = ops.vector(floats(1, weight.rows)), ops.tensor(floats(2, n, weight.rows))
    return host(ops, ops.linear(x, handle, bias=bias, residual=residual, softcap=3.0))


@cache
def plain_linear(name: str, n: int, plainly: bool) -> np.ndarray:
    return linear(PlainOps(), WEIGHTS[name](), n, plainly)


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_linear_has_the_bits_of_the_weight_in_memory(ops: Ops, name: str) -> None:
    of, most = WEIGHTS[name](), 5 if isinstance(ops, PlainOps) else MANY
    for n, plainly in product(COUNTS, (True, False)):
        if n > most:
            continue
        judged = linear(ops, of, n, plainly)
        assert isinstance(ops, ReferenceOps) or same_bits(judged, plain_linear(name, n, plainly))
        for sizes in SIZES if isinstance(ops, NativeOps) else SIZES[-1:]:
            lender = ArrayLender(sizes)
            assert same_bits(linear(ops, lender.lent(of), n, plainly), judged), (n, plainly, sizes)
            assert not lender.busy


@pytest.mark.parametrize("lends", [(0,), (1,), (2, 3), (0, 1, 2, 3), (0, 3)], ids=str)
def test_linears_of_one_input_may_be_lent_or_not(ops: Ops, lends: tuple[int, ...]) -> None:
    parts = [weight("Q4_K"), weight("Q6_K", 1, 5, 768), weight("F32", 2, 9, 768), even("TQ2_0")]
    for n in COUNTS[:2]:
        x = ops.tensor(rows_for(768)[:n])
        lender = ArrayLender()
        mixed = [lender.lent(of) if i in lends else of for i, of in enumerate(parts)]
        made = [host(ops, out) for out in ops.linears(x, [ops.matrix(of) for of in mixed])]
        judged = [host(ops, ops.linear(x, ops.matrix(of))) for of in parts]
        assert all(same_bits(*pair) for pair in zip(made, judged, strict=True))
        assert lender.windows


PAIRS: dict[str, Callable[[], tuple[Weight, Weight]]] = {
    "Q4_0": lambda: (weight("Q4_0"), weight("Q4_0", 1)),
    "Q4_K and Q6_K": lambda: (weight("Q4_K"), weight("Q6_K", 1)),
    "IQ3_S and F16": lambda: (weight("IQ3_S"), weight("F16", 1, ROWS, 768)),
    "F32": lambda: (weight("F32"), weight("F32", 1)),
    "even": lambda: (even("TQ2_0"), even("TQ1_0", 1)),
    "even and uneven": lambda: (even("TQ2_0"), uneven("TQ2_0")),
    "uneven and even": lambda: (uneven("TQ1_0"), even("TQ2_0")),
    "uneven": lambda: (uneven("TQ1_0"), uneven("TQ2_0")),
    "even and blocks": lambda: (even("TQ2_0"), weight("Q4_K", 1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_gated_layers_have_the_bits_of_those_in_memory_whichever_matrix_is_lent(ops: Ops, name: str) -> None:
    gate, up = PAIRS[name]()
    for n in COUNTS[:2] if isinstance(ops, PlainOps) else COUNTS:
        x = ops.tensor(rows_for(gate.columns)[:n])
        for activation in ("silu", "gelu_tanh", "relu_squared", "swiglu_clamped"):
            judged = host(ops, ops.gated(x, ops.matrix(gate), ops.matrix(up), activation))
            for first, second in ((True, True), (True, False), (False, True)):
                lender = ArrayLender()
                handles = [ops.matrix(lender.lent(of) if lends else of) for of, lends in ((gate, first), (up, second))]
                for _ in range(2):  # of an uneven one more is known the second time
                    assert same_bits(host(ops, ops.gated(x, *handles, activation)), judged)
                assert lender.windows and not lender.busy


def test_two_matrices_of_a_gated_layer_are_walked_together(native: NativeOps) -> None:
    lender = ArrayLender()
    gate, up = (native.matrix(lender.lent(of)) for of in PAIRS["Q4_K and Q6_K"]())
    native.gated(native.tensor(rows_for(768)[:5]), gate, up)
    assert lender.walks == [2]


@pytest.mark.parametrize("encoding", ["F32", "F16", "Q4_1", "Q6_K", "IQ2_XS", "TQ1_0"])
def test_an_embedding_reads_its_tokens_rows_alone(ops: Ops, encoding: str) -> None:
    table, tokens, lender = weight(encoding), [5, 0, 36, 5, 7], ArrayLender()
    for scale in (1.0, 3.5):
        judged = host(ops, ops.embed(ops.matrix(table), tokens, scale=scale))
        assert same_bits(host(ops, ops.embed(ops.matrix(lender.lent(table)), tokens, scale=scale)), judged)
    assert lender.windows == 2 and not lender.walks


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("encoding", ["Q8_0", "Q4_K", "F16", "F32"])
def test_heads_have_the_bits_of_those_in_memory(ops: Ops, encoding: str, transposed: bool) -> None:
    heads, rows = 20, 9
    flat = weight(encoding, 3, heads * (rows + 2))
    data = flat.data.reshape(heads, rows + 2, -1)[:, 1:-1]
    stack = Stack("w", encoding, heads, rows, flat.columns, data)
    for n in (1, 3, 4, 13):
        x = ops.tensor(floats(n, n, heads * (rows if transposed else flat.columns)))
        judged = host(ops, ops.head_linears(x, ops.stack(stack), transposed=transposed))
        for sizes in SIZES:
            lent = ops.stack(ArrayLender(sizes).lent(stack))
            assert same_bits(host(ops, ops.head_linears(x, lent, transposed=transposed)), judged), (n, sizes)


N_EXPERTS, WIDTH, HIDDEN = 12, 40, 50
KINDS = (
    ("Q8_0", "Q8_0", "Q8_0"),
    ("Q4_K", "Q4_K", "Q6_K"),
    ("IQ2_XS", "IQ3_S", "IQ4_XS"),
    ("F32", "F32", "F32"),
    ("Q4_0", "F32", "Q5_1"),
)


@cache
def mixture(kinds: tuple[str, str, str]) -> tuple[Stack, Stack, Stack]:
    """Gate and up of every expert in one tensor where they have one encoding."""

    def whole(encoding: str, columns: int) -> int:
        block = weights.get(encoding).block
        return -(-columns // block) * block

    def matrices(seed: int, encoding: str, rows: int, columns: int) -> np.ndarray:
        if weights.get(encoding).block == 1:
            return (floats(seed, N_EXPERTS, rows, columns) / np.float32(8)).view(np.uint8)
        few = weight(encoding, seed, 20, columns).data[:-1]
        return few[np.random.default_rng(seed).integers(0, len(few), (N_EXPERTS, rows))]

    columns, width = max(whole(kind, 96) for kind in kinds[:2]), whole(kinds[2], WIDTH)
    if kinds[0] == kinds[1]:
        both = matrices(0, kinds[0], 2 * width, columns)
        gates, ups = both[:, :width], both[:, width:]
    else:
        gates, ups = (matrices(seed, kinds[seed], width, columns) for seed in (0, 1))
    return (
        Stack("blk.1.gate", kinds[0], N_EXPERTS, width, columns, gates),
        Stack("blk.1.up", kinds[1], N_EXPERTS, width, columns, ups),
        Stack("blk.1.down", kinds[2], N_EXPERTS, HIDDEN, width, matrices(2, kinds[2], HIDDEN, width)),
    )


def mixed(ops: Ops, stacks: tuple[Stack, ...], n: int, biased: bool, lender: ArrayLender | None = None) -> np.ndarray:
    """Of n rows, many of which go to one expert. With biases the experts have scales, too."""
    biases = {}
    if biased:
        scales = np.abs(floats(8, N_EXPERTS)) + np.float32(0.5)
        stacks = tuple(replace(of, scales=scales) for of in stacks)
        names = "gate_bias", "up_bias", "down_bias"
        biases = {name: ops.vector(floats(7, N_EXPERTS * of.rows)) for name, of in zip(names, stacks, strict=True)}
    if lender:
        stacks = tuple(map(lender.lent, stacks))
    logits = floats(9, MANY, N_EXPERTS)
    logits[:, 3] += 4
    routing = ops.route(ops.tensor(logits[:n]), Router(4, normalise=True))
    x = ops.tensor(rows_for(stacks[0].columns)[:n])
    handles = map(ops.stack, stacks)
    return host(ops, ops.experts(x, routing, *handles, "swiglu_clamped" if biased else "silu", **biases))


@cache
def plain_mixed(kinds: tuple[str, str, str], biased: bool) -> np.ndarray:
    return mixed(PlainOps(), mixture(kinds), MANY, biased)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_experts_have_the_bits_of_those_in_memory(ops: Ops, kinds: tuple[str, str, str], biased: bool) -> None:
    native = isinstance(ops, NativeOps)
    for n in (1, 2, 5, 9, MANY) if native else (5,):
        judged = mixed(ops, mixture(kinds), n, biased)
        assert isinstance(ops, ReferenceOps) or same_bits(judged, plain_mixed(kinds, biased)[:n])
        for sizes in SIZES if native else SIZES[-1:]:
            lender = ArrayLender(sizes)
            assert same_bits(mixed(ops, mixture(kinds), n, biased, lender), judged), (n, sizes)
            assert not lender.busy and not lender.walks


@pytest.mark.parametrize("n", [1, 3])
def test_experts_that_nobody_chose_are_not_read(ops: Ops, n: int) -> None:
    lender = ArrayLender()
    mixed(ops, mixture(KINDS[0]), n, False, lender)
    assert len(lender.experts_read) == len(set(lender.experts_read)) < N_EXPERTS and 3 in lender.experts_read


@pytest.mark.parametrize("lends", [(0,), (1,), (2,), (0, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("kinds", [KINDS[1], KINDS[4]], ids="-".join)
def test_some_stacks_of_a_mixture_may_be_lent(ops: Ops, kinds: tuple[str, str, str], lends: tuple[int, ...]) -> None:
    for n, biased in product((1, 5), (False, True)):
        lender = ArrayLender((1, 5))
        stacks = tuple(lender.lent(of) if i in lends else of for i, of in enumerate(mixture(kinds)))
        assert same_bits(mixed(ops, stacks, n, biased), mixed(ops, mixture(kinds), n, biased))
        assert lender.windows and not lender.busy


def steps(ops: NativeOps, lender: ArrayLender) -> dict[str, Callable[[], np.ndarray]]:
    """Every operation that takes windows."""
    x = rows_for(768)[:5]
    gate, up, table = (ops.matrix(lender.lent(weight(name))) for name in ("Q4_K", "Q6_K", "IQ3_S"))
    heads = ops.stack(lender.lent(Stack("w", "F32", 6, 7, 128, floats(1, 6, 7, 128).view(np.uint8))))
    apart = lender.lent(mixture(KINDS[1])[0]), *mixture(KINDS[1])[1:]
    return {
        "linear": lambda: host(ops, ops.linear(ops.tensor(x), up)),
        "gated": lambda: host(ops, ops.gated(ops.tensor(x), gate, up)),
        "heads": lambda: host(ops, ops.head_linears(ops.tensor(x), heads)),
        "embed": lambda: host(ops, ops.embed(table, [1, 2])),
        "experts": lambda: mixed(ops, mixture(KINDS[1]), 5, True, lender),
        "experts apart": lambda: mixed(ops, apart, 5, True),
    }


@pytest.mark.parametrize("step", ["linear", "gated", "heads", "embed", "experts", "experts apart"])
def test_after_a_fault_in_the_middle_everything_is_as_before(native: NativeOps, step: str) -> None:
    lender = ArrayLender((3, 1))
    run = steps(native, lender)[step]
    judged, held = run(), native.nbytes
    asked = lender.windows
    for fault in {0, asked // 2, asked - 1}:
        lender.fault = fault
        with pytest.raises(ModelFileError, match="does not answer"):
            run()
        assert not lender.busy
        assert same_bits(run(), judged)
    assert native.nbytes == held


def test_a_pass_over_lent_weights_is_not_recorded(native: NativeOps) -> None:
    lender, of = ArrayLender(), weight("Q8_0")

    def forward(tokens, start):
        return native.embed(table, tokens)

    table = native.matrix(of)
    assert native.recorded(forward) is not forward
    table = native.matrix(lender.lent(of))
    assert native.recorded(forward) is forward


def test_an_encoding_without_a_kernel_is_refused_before_anything_is_lent(ops: Ops) -> None:
    lender = ArrayLender()
    with pytest.raises(UnsupportedModelError, match="Q9_9"):
        ops.matrix(lender.lent(Weight("w", "Q9_9", 1, 32, np.zeros((1, 34), np.uint8))))
    with pytest.raises(UnsupportedModelError, match="Q9_9"):
        ops.stack(lender.lent(Stack("w", "Q9_9", 1, 1, 32, np.zeros((1, 1, 34), np.uint8))))
