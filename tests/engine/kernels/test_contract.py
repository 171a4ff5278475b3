"""Every encoding, operation and library: its bits against the plain twin, the twin's accuracy against float64.

A library that gives the twin's bits has the twin's accuracy, so that is measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest

from engine import weights
from engine.formats import open_index
from engine.kernels.native import NativeOps, library
from engine.kernels.ops import AttentionSpec, CacheSpec, Handle, Ops, Tensor, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.types import CACHE_KINDS
from tests.engine.kernels.cases import same_bits
from tests.engine.kernels.test_native import runnable

F32 = np.ndarray
BOUND = 1e-4
"""The largest ‖error‖ / ‖output‖."""
TINY = 2.0**-100
"""Activations in blocks below it count as zero (CONTRACT.md, section 4)."""
PLAIN = "plain"
N, ROWS, BLOCKS, N_HEADS = 16, 11, 18, 6
INPUTS = ("random", "extreme", "real")
OPERATIONS = (
    "linear",
    "bias",
    "residual",
    "bias and residual",
    "linears",
    "gated silu",
    "gated gelu_tanh",
    "gated gelu_erf",
)
KERNELS = frozenset(library.encodings(library.load()[1]))
TOKENS = (slice(1, 2), slice(0, 3), slice(2, 7), slice(0, N))
SOME_ROWS = (slice(2, 3), slice(0, 3), slice(0, ROWS))
"""Parts of a case that run on their own: 1, 3, 5 and 16 tokens, 1, 3 and 11 rows."""


@dataclass(frozen=True)
class Case:
    """x [16, columns] against two weights of 11 rows each."""

    encoding: str
    x: F32
    first: np.ndarray
    second: np.ndarray
    bias: F32
    residual: F32

    def weight(self, data: np.ndarray) -> Weight:
        return Weight("w", self.encoding, len(data), self.x.shape[1], data)


def tensor(ops: Ops, values: F32) -> Tensor:
    """The values, exactly, as an activation."""
    values = np.ascontiguousarray(values, np.float32)
    return ops.embed(ops.matrix(Weight("x", "F32", *values.shape, values.view(np.uint8))), range(len(values)))


def host(ops: Ops, x: Tensor) -> F32:
    """A copy; that of the reference in float64."""
    return x.numpy() if isinstance(ops, ReferenceOps) else ops.host(x).copy()


def drawn_blocks(rng: np.random.Generator, encoding: str, kinds: np.ndarray) -> np.ndarray:
    """Packed blocks [rows, blocks · bytes] out of random bytes, as `kinds` [rows, blocks] asks for each.

    "o" is a block whose largest weight is about 1, "z" one of zeros, "h" the largest below a million, "s" one of the
    smallest that are not zero, whose scale (or value) is subnormal.
    """
    form = weights.get(encoding)
    pool = rng.integers(0, 256, (4096, form.block_bytes), np.uint8)
    with np.errstate(all="ignore"):
        top = np.abs(form.decode(pool)).max(axis=1)
    pool, top = (part[np.argsort(top, kind="stable")] for part in (pool, top))
    ordinary = pool[(top > 0.5) & (top < 2)]
    chosen = ordinary[rng.integers(0, len(ordinary), kinds.shape)]
    chosen[kinds == "z"] = 0
    chosen[kinds == "h"] = pool[top < 1e6][-1]
    smallest = pool[top > 0][:3]
    chosen[kinds == "s"] = smallest[np.arange((kinds == "s").sum()) % len(smallest)]
    return chosen.reshape(len(kinds), -1)


def make_case(encoding: str, inputs: str, real: F32) -> Case:
    rng = np.random.default_rng([INPUTS.index(inputs), *encoding.encode()])
    form = weights.get(encoding)
    # An odd width where the encoding has no blocks.
    columns = BLOCKS * form.block if form.block > 1 else BLOCKS * 32 + (inputs != "real")
    kinds = np.full((ROWS, columns // form.block), "o")
    x = rng.standard_normal((N, columns), np.float32)
    if inputs == "random":
        x[:, ::7] *= 20
    elif inputs == "real":
        x = np.resize(real, (N, columns))
    else:
        kinds[0], kinds[1, ::2], kinds[2, 3], kinds[3], kinds[4, 1::3] = "z", "z", "h", "s", "s"
        x[0] = 0
        x[1, 70] = 1e8
        x[2] = 1e-42
        x[3, :32], x[3, 32:64], x[3, 64:96] = 0, 1e-31, -1e-42
        x[4, np.arange(columns) != 5] = 0
        x[5] *= 1e8
        x[6] *= 1e-25
    first, second = (drawn_blocks(rng, encoding, kinds) for _ in range(2))
    return Case(
        encoding, x, first, second, rng.standard_normal(ROWS, np.float32), rng.standard_normal((N, ROWS), np.float32)
    )


def run(ops: Ops, operation: str, case: Case, tokens: slice = slice(None), rows: slice = slice(None)) -> list[F32]:
    """The results [n, rows] for some of a case's tokens and some of its weight rows."""

    def bias() -> Handle:
        return ops.vector(case.bias[rows])

    def residual() -> Tensor:
        return tensor(ops, case.residual[tokens, rows])

    x = tensor(ops, case.x[tokens])
    first, second = (ops.matrix(case.weight(data[rows])) for data in (case.first, case.second))
    made: dict[str, Callable[[], list[Tensor]]] = {
        "linear": lambda: [ops.linear(x, first)],
        "bias": lambda: [ops.linear(x, first, bias=bias())],
        "residual": lambda: [ops.linear(x, first, residual=residual())],
        "bias and residual": lambda: [ops.linear(x, first, bias=bias(), residual=residual())],
        "linears": lambda: ops.linears(x, [first, second, first, second]),
        "gated silu": lambda: [ops.gated(x, first, second, "silu")],
        "gated gelu_tanh": lambda: [ops.gated(x, first, second, "gelu_tanh")],
        "gated gelu_erf": lambda: [ops.gated(x, first, second, "gelu_erf")],
    }
    return [host(ops, out) for out in made[operation]()]


Judge = Callable[[str, str, str], tuple[Case, list[F32]]]


@pytest.fixture(scope="module")
def real(starter: Path) -> F32:
    """What the starter's first layer multiplies with its weights: normed embeddings of 128 tokens, [128, 576]."""
    index = open_index(starter)
    table, norm = index.tensors["token_embd.weight"], index.tensors["blk.0.attn_norm.weight"]
    raw = np.memmap(table.path, np.uint8, "r", table.offset, (table.shape[0], table.nbytes // table.shape[0]))
    rows = weights.get(table.encoding).decode(np.ascontiguousarray(raw[1000:1128]))
    weight = np.fromfile(norm.path, np.float32, norm.shape[0], offset=norm.offset)
    return PlainOps().rms_norm(rows, weight, 1e-5)


@pytest.fixture(scope="module")
def judge(real: F32) -> Judge:
    """A case and what the plain twin makes of it, worked out once for all libraries."""
    case = cache(lambda encoding, inputs: make_case(encoding, inputs, real))

    @cache
    def judged(encoding: str, operation: str, inputs: str) -> tuple[Case, list[F32]]:
        return case(encoding, inputs), run(PlainOps(), operation, case(encoding, inputs))

    return judged


@pytest.fixture(scope="module")
def libraries() -> Iterator[dict[str, NativeOps]]:
    made = {isa: NativeOps(2, isa) for isa in runnable()}
    yield made
    for ops in made.values():
        ops.close()


def held() -> list[tuple[str, str]]:
    """Every encoding with the twin and with each library that has a kernel for it."""
    return [(name, isa) for name in weights.ENCODINGS for isa in (PLAIN, *(runnable() if name in KERNELS else ()))]


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("encoding", "isa"), held())
def test_one_contract_for_every_encoding_operation_and_library(
    judge: Judge, libraries: dict[str, NativeOps], encoding: str, isa: str, operation: str, inputs: str
) -> None:
    case, expected = judge(encoding, operation, inputs)
    if isa == PLAIN:
        check_accuracy(case, operation, expected)
        return
    for tokens, rows in product(TOKENS, SOME_ROWS):
        for made, twin in zip(run(libraries[isa], operation, case, tokens, rows), expected, strict=True):
            assert same_bits(made, twin[tokens, rows]), (tokens, rows)


def check_accuracy(case: Case, operation: str, made: list[F32]) -> None:
    """‖error‖ < 1e-4·‖output‖, every output in units of the sizes that it is made of, so that none hides the others.

    No bound relative to an output can hold for what the contract or float32 takes for zero: activations and weights
    below 2⁻¹⁰⁰, products below 2⁻¹⁴⁹. What these can have moved is taken off the error.
    """
    x = case.x.astype(np.float64)
    factors = []
    for data in (case.first, case.second):
        w = weights.get(case.encoding).decode(data).astype(np.float64)
        unit = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(w, axis=1))
        factors.append((unit, TINY * np.add.outer(np.abs(x).sum(axis=1), np.abs(w).sum(axis=1))))
    if operation.startswith("gated"):
        (gate, gate_lost), (up, up_lost) = factors
        factors = [(gate * up, gate_lost * up + gate * up_lost + 2.0**-149)]
    exact = run(ReferenceOps("float64"), operation, case)
    for out, true, (unit, lost) in zip(made, exact, cycle(factors)):
        if "bias" in operation:
            unit = unit + np.abs(case.bias)
        if "residual" in operation:
            unit = unit + np.abs(case.residual)
        unit = np.where(unit == 0, 1, unit)
        error = np.maximum(np.abs(out - true) - lost, 0)
        assert np.linalg.norm(error / unit) < BOUND * np.linalg.norm(true / unit)


@pytest.mark.parametrize(("encoding", "isa"), held())
def test_embedding_rows_are_the_reference_decode(
    judge: Judge, libraries: dict[str, NativeOps], encoding: str, isa: str
) -> None:
    ops = PlainOps() if isa == PLAIN else libraries[isa]
    for inputs, tokens in product(INPUTS, ([5], [10, 0, 3], [2, 2, 9, 4, 1], [*range(N)])):
        case = judge(encoding, "linear", inputs)[0]
        weight = case.weight(np.concatenate([case.first, case.second]))
        made = host(ops, ops.embed(ops.matrix(weight), tokens))
        assert same_bits(made, weights.get(encoding).decode(weight.data)[tokens])
        exact = ReferenceOps("float64")
        assert np.array_equal(made, host(exact, exact.embed(exact.matrix(weight), tokens)))


@dataclass(frozen=True)
class Heads:
    """Attention over `length` positions."""

    kind: str
    window: int | None
    softcap: float | None
    sinks: bool
    n_kv_heads: int
    key_dim: int
    value_dim: int
    length: int = 140

    def __str__(self) -> str:
        extras = f"window {self.window}", f"softcap {self.softcap}", "sinks" if self.sinks else "no sinks"
        return ", ".join([self.kind, *extras, f"{self.n_kv_heads}x{self.key_dim}/{self.value_dim}", f"{self.length}"])


def heads() -> Iterator[Heads]:
    """Six query heads share two or six key heads; widths are odd where the cache's format allows it."""
    for kind, window, softcap, sinks, kv in product(CACHE_KINDS, (None, 1, 70), (None, 4.0), (False, True), (2, 6)):
        odd = (64, 96) if kind == "q8_0" else (13, 7)
        yield Heads(kind, window, softcap, sinks, kv, *((32, 32) if kv == 6 else odd))
    for kind in CACHE_KINDS:
        yield Heads(kind, None, None, True, 2, 32, 64, length=600)


def attend(ops: Ops, case: Heads, chunk: int) -> F32:
    """All rows, `chunk` a call: [length, n_heads · value_dim]."""
    rng = np.random.default_rng(case.length)
    q = rng.standard_normal((case.length, N_HEADS * case.key_dim), np.float32) * np.float32(3)
    k = rng.standard_normal((case.length, case.n_kv_heads * case.key_dim), np.float32)
    v = rng.standard_normal((case.length, case.n_kv_heads * case.value_dim), np.float32)
    q, k, v = (tensor(ops, values) for values in (q, k, v))
    sinks = ops.vector(rng.standard_normal(N_HEADS, np.float32) * np.float32(2)) if case.sinks else None
    cache = ops.cache(CacheSpec(case.n_kv_heads, case.key_dim, case.value_dim), case.length, case.kind)
    spec = AttentionSpec(N_HEADS, case.key_dim**-0.5, case.window, case.softcap)
    parts = []
    for start in range(0, case.length, chunk):
        stop = min(start + chunk, case.length)
        rows = (ops.rows(x, start, stop) for x in (q, k, v))
        parts.append(host(ops, ops.attention(*rows, cache, spec, start, sinks)))
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def attended() -> Callable[[Heads], F32]:
    """What the plain twin makes of all rows at once, worked out once for all libraries and chunks."""
    return cache(lambda case: attend(PlainOps(), case, case.length))


@pytest.mark.parametrize("isa", [PLAIN, *runnable()])
@pytest.mark.parametrize("case", list(heads()), ids=str)
def test_one_contract_for_attention_whatever_the_chunk(
    attended: Callable[[Heads], F32], libraries: dict[str, NativeOps], case: Heads, isa: str
) -> None:
    expected = attended(case)
    if isa == PLAIN:
        exact = attend(ReferenceOps("float64"), case, 64)
        error, size = (np.linalg.norm(part, axis=1) for part in (expected - exact, exact))
        assert (error < BOUND * size).all()
        return
    for chunk in (1, 7, 64, 512):
        assert same_bits(attend(libraries[isa], case, chunk), expected), chunk
