"""Recurrent layers: every device against the contract's twin and the reference, however a text is cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.kernels.native import NativeOps
from engine.kernels.native.recurrent import NativeState
from engine.kernels.ops import LayerCache, Ops, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.kernels.state import StateSpec
from tests.engine.devices import DEVICES
from tests.engine.kernels.cases import golden, same_bits
from tests.engine.kernels.test_native import runnable

N = 11


def spec_of(n_key_heads: int, n_heads: int, key_dim: int, value_dim: int, taps: int = 4) -> StateSpec:
    channels = 2 * n_key_heads * key_dim + n_heads * value_dim
    return StateSpec(channels, taps, n_key_heads, n_heads, key_dim, value_dim)


SPECS = {
    "whole blocks": spec_of(2, 2, 16, 64),
    "shared key heads": spec_of(2, 6, 24, 32),
    "a block and a tail": spec_of(1, 3, 13, 45),
    "narrow heads": spec_of(3, 3, 8, 6),
    "one tap": spec_of(1, 1, 8, 8, taps=1),
    "more taps than rows": spec_of(2, 4, 16, 16, taps=9),
}
CUTS = {"whole": (0, N), "steps": tuple(range(N + 1)), "threes": (0, 3, 6, 9, N), "uneven": (0, 1, 8, N)}
EXTREMES = {
    "nan": np.nan, "infinity": np.inf, "negative infinity": -np.inf, "zeros": 0.0, "tiny": 1e-42, "huge": 1e30,
}  # fmt: skip


class Case:
    """Inputs of N rows for one layer."""

    def __init__(self, spec: StateSpec, seed: int = 3) -> None:
        draws = np.random.default_rng(seed)
        self.spec = spec
        self.x = draws.standard_normal((N, spec.channels), np.float32) * np.float32(2)
        self.a, self.b = (draws.standard_normal((N, spec.n_heads), np.float32) * np.float32(3) for _ in range(2))
        self.a[N // 2] = 30  # softplus is the identity there
        self.taps = draws.standard_normal((spec.channels, spec.taps), np.float32)
        self.rate = -draws.random(spec.n_heads, np.float32)
        self.bias = draws.standard_normal(spec.n_heads, np.float32)

    def run(self, ops: Ops, cuts: Sequence[int] = (0, N), state: LayerCache | None = None) -> np.ndarray:
        """Both operations one after the other over the rows between neighbouring cuts."""
        state = state or ops.cache(self.spec, N, "f16")
        rate, bias, taps = ops.vector(self.rate), ops.vector(self.bias), ops.vector(self.taps)
        rows = []
        for start, stop in pairwise(cuts):
            x, a, b = (ops.tensor(values[start:stop]) for values in (self.x, self.a, self.b))
            made = ops.convolved(x, taps, state, start, "silu")
            made = ops.spliced(made, ops.delta_rule(made, a, b, rate, bias, state, start), 1)
            rows.append(np.array(ops.host(made)))
        return np.concatenate(rows)


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[(isa, threads) for isa in runnable() for threads in (1, 2, 3)], ids=str)
def native(request: pytest.FixtureRequest) -> Iterator[NativeOps]:
    with closing(NativeOps(request.param[1], request.param[0])) as made:
        yield made


@pytest.fixture(params=DEVICES)
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    with closing(DEVICES[request.param]()) as made:
        yield made


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("name", SPECS)
def test_native_gives_the_bits_of_the_plain_twin_however_the_rows_are_cut(
    native: NativeOps, name: str, cuts: str
) -> None:
    case = Case(SPECS[name])
    assert same_bits(case.run(native, CUTS[cuts]), case.run(PlainOps()))


@pytest.mark.parametrize("name", SPECS)
def test_the_plain_twin_gives_what_the_reference_gives(name: str) -> None:
    case = Case(SPECS[name])
    exact = case.run(ReferenceOps("float64"))
    for cuts in CUTS.values():
        np.testing.assert_allclose(case.run(PlainOps(), cuts), exact, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(case.run(ReferenceOps("float64"), cuts), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("extreme", EXTREMES)
def test_numbers_at_the_edge_give_the_same_bits_too(native: NativeOps, extreme: str) -> None:
    case = Case(SPECS["shared key heads"])
    case.x[2, ::5] = case.a[4, 1] = case.b[6, 2] = EXTREMES[extreme]
    case.x[8] = EXTREMES[extreme]
    assert same_bits(case.run(native, CUTS["uneven"]), case.run(PlainOps()))


def test_what_a_state_holds_does_not_count_at_position_0(ops: Ops) -> None:
    case, state = Case(SPECS["shared key heads"]), ops.cache(SPECS["shared key heads"], N, "f16")
    first = case.run(ops, CUTS["threes"], state)
    assert same_bits(case.run(ops, CUTS["threes"], state), first)


def test_a_copied_state_goes_on_as_its_source_and_is_not_touched_by_it(ops: Ops) -> None:
    case = Case(SPECS["a block and a tail"])
    live, kept = (ops.cache(case.spec, N, "f16") for _ in range(2))
    whole = case.run(ops, CUTS["steps"])
    case.run(ops, range(5), live)
    ops.copy_state(live, kept)
    rest = whole[4:]
    assert same_bits(case.run(ops, range(4, N + 1), live), rest)
    ops.copy_state(kept, live)
    for state in (kept, live):
        assert same_bits(case.run(ops, range(4, N + 1), state), rest)


def test_a_state_is_float32_of_the_size_that_its_spec_says_whatever_the_cache_is(ops: Ops) -> None:
    spec = StateSpec(channels=40, taps=4, n_key_heads=1, n_heads=2, key_dim=8, value_dim=12)
    assert spec.nbytes == 4 * (3 * 40 + 2 * 8 * 12)
    for kind in ("f16", "q8_0"):
        state = ops.cache(spec, 1000, kind)
        assert (state.nbytes, state.kind, state.spec) == (spec.nbytes, "f32", spec)


@pytest.mark.parametrize("cuts", [(0, 5), (0, 1, 2, 3, 4, 5), (0, 2, 5)])
def test_the_native_convolution_gives_the_frozen_bits(native: NativeOps, cuts: tuple[int, ...]) -> None:
    inputs, expected = golden()["convolution"]
    state = native.cache(StateSpec(11, 4, 0, 0, 0, 0), 8, "f16")
    assert isinstance(state, NativeState)
    state.values[:] = inputs["state"].ravel()
    taps = native.vector(inputs["w"])
    made = []
    for start, stop in pairwise(cuts):  # the frozen inputs follow others
        x = native.tensor(inputs["x"][start:stop])
        made.append(native.host(native.convolved(x, taps, state, start + 3, "silu")).copy())
    silu = PlainOps().activate(expected["out"], "silu")
    assert same_bits(np.concatenate(made), silu)
    assert same_bits(state.values.reshape(3, 11), expected["state"])


def test_a_recorded_pass_moves_the_state_as_the_pass_itself(native: NativeOps) -> None:
    case = Case(SPECS["shared key heads"])
    whole = case.run(native, CUTS["steps"])
    state = native.cache(case.spec, N, "f16")
    rate, bias, taps = native.vector(case.rate), native.vector(case.bias), native.vector(case.taps)
    rows = native.matrix(_float_rows("rows", np.concatenate([case.x, case.a, case.b], axis=1)))
    width, heads = case.spec.channels, case.spec.n_heads

    def forward(tokens: Sequence[int], start: int) -> object:
        row = native.embed(rows, tokens)
        x, a, b = (
            native.pick(row, 1, *part)
            for part in ((0, width), (width, width + heads), (width + heads, width + 2 * heads))
        )
        made = native.convolved(x, taps, state, start, "silu")
        return native.spliced(made, native.delta_rule(made, a, b, rate, bias, state, start), 1)

    recorded = native.recorded(forward)
    for _ in range(2):
        replayed = [native.host(recorded([t], t)).copy() for t in range(N)]
        assert same_bits(np.concatenate(replayed), whole)


def _float_rows(name: str, values: np.ndarray) -> Weight:
    values = np.ascontiguousarray(values)
    return Weight(name, "F32", *values.shape, values.view(np.uint8))
