"""The native kernels against the golden vectors and the plain twin, bit by bit, on every instruction set here."""

from __future__ import annotations

import threading
from contextlib import closing

import numpy as np
import pytest

from engine import weights
from engine.errors import BudgetError, MillstreamError, NumericsError, SettingsError, UnsupportedModelError
from engine.kernels.native import NativeOps, available, library
from engine.kernels.ops import AttentionSpec, CacheSpec, Rotary, Weight
from engine.kernels.plain import PlainOps
from tests.engine.kernels.cases import ATTENTION, PACKED, golden, packed_rows, same_bits

GOLDEN = golden()
THREADS = (1, 2, 3)


def runnable() -> list[str]:
    out = []
    for isa in available():
        try:
            library.load(isa)
            out.append(isa)
        except SettingsError:
            continue
    return out


@pytest.fixture(params=[(isa, threads) for isa in runnable() for threads in THREADS], ids=lambda p: f"{p[0]}-{p[1]}")
def ops(request):
    isa, threads = request.param
    made = NativeOps(threads, isa)
    yield made
    made.close()


def tensor(ops: NativeOps, values: np.ndarray):
    values = np.ascontiguousarray(values, np.float32).reshape(values.shape[0], -1)
    out = ops._workspace.take(*values.shape)
    out.array()[:] = values
    return out


def weight(name: str, data: np.ndarray) -> Weight:
    encoding = weights.get(name)
    columns = data.shape[1] // encoding.block_bytes * encoding.block
    return Weight("w", name, data.shape[0], columns, data)


def test_a_portable_library_and_the_fastest_for_this_processor_were_built() -> None:
    assert "portable" in available()
    assert library.load()[0] == runnable()[0]


FUNCTIONS = ("exp", "silu", "tanh", "erf", "gelu_tanh", "gelu_erf", "sigmoid", "relu_squared", "log", "softplus")
"""By their numbers in `ms_function`."""


@pytest.mark.parametrize(("which", "name"), list(enumerate(FUNCTIONS)))
def test_elementary_functions_give_the_frozen_bits(ops, which, name) -> None:
    inputs, expected = GOLDEN[f"function/{name}"]
    out = np.empty_like(inputs["x"])
    ops._lib.ms_function(which, inputs["x"].ctypes.data, out.size, out.ctypes.data)
    assert same_bits(out, expected["out"])


def test_quantised_activations_give_the_frozen_bits(ops) -> None:
    inputs, expected = GOLDEN["quantise"]
    x = inputs["x"]
    q, s = np.empty(x.shape, np.int16), np.empty((x.shape[0], x.shape[1] // 32), np.float32)
    ops._lib.ms_quantise(x.ctypes.data, *x.shape, q.ctypes.data, s.ctypes.data)
    assert same_bits(s, expected["s"])
    assert (q.reshape(expected["q"].shape) == expected["q"]).all()


LINEAR = [case for case in GOLDEN if case.startswith("linear/")]


@pytest.mark.parametrize("case", LINEAR)
def test_linear_gives_the_frozen_bits_for_many_rows_and_for_one(ops, case) -> None:
    inputs, expected = GOLDEN[case]
    name = case.partition("/")[2]
    matrix = ops.matrix(weight(name, inputs["w"]))
    x = inputs["x"]
    assert same_bits(ops.host(ops.linear(tensor(ops, x), matrix)), expected["out"])
    for row in range(x.shape[0]):
        assert same_bits(ops.host(ops.linear(tensor(ops, x[row : row + 1]), matrix)), expected["out"][row : row + 1])


@pytest.mark.parametrize("name", PACKED)
def test_every_encoding_gives_the_twins_bits_at_every_width(ops, name) -> None:
    rng = np.random.default_rng(7)
    block = weights.get(name).block
    for blocks in (1, 2, 5) if block == 256 else (1, 2, 7, 8, 9, 16, 23):
        packed = weight(name, packed_rows(rng, name, 9, blocks * block))
        twin, ours = PlainOps().matrix(packed), ops.matrix(packed)
        for n in (1, 2, 5, 17):
            x = rng.standard_normal((n, blocks * block), np.float32)
            assert same_bits(ops.host(ops.linear(tensor(ops, x), ours)), PlainOps().linear(x, twin)), (blocks, n)


def uniform_rows(name: str, byte: int) -> np.ndarray | None:
    """Nine rows of equal bytes but for scales that would not be finite or not tell; None where that is not enough."""
    encoding = weights.get(name)
    for first, last in ((0, 0), (2, 0), (4, 0), (0, 2), (0, 4)):
        block = np.full(encoding.block_bytes, byte, np.uint8)
        for part in (block[:first], block[block.size - last :]):
            part.view(np.float16)[:] = 0.01
        with np.errstate(all="ignore"):
            decoded = encoding.decode(block[None])
        if np.isfinite(decoded).all() and decoded.any():
            return np.tile(block, (9, 9))
    return None


@pytest.mark.parametrize("name", PACKED)
def test_the_largest_codes_and_activations_do_not_overflow(ops, name) -> None:
    columns = 9 * weights.get(name).block
    x = np.ones((4, columns), np.float32)
    x[1] = -1
    x[2, np.arange(columns) % 32 > 0] = 32384 / 32512  # codes of -128 + 256 * 127
    x[3, np.arange(columns) % 32 > 0] = -32385 / 32512  # codes of 127 - 256 * 127
    tried = 0
    for byte in (0x00, 0x77, 0x88, 0xFF):
        rows = uniform_rows(name, byte)
        if rows is not None:
            tried += 1
            packed = weight(name, rows)
            matrix, expected = ops.matrix(packed), PlainOps().linear(x, PlainOps().matrix(packed))
            for part in (slice(0, 4), slice(0, 3), slice(3, 4)):
                assert same_bits(ops.host(ops.linear(tensor(ops, x[part]), matrix)), expected[part]), (byte, part)
    assert tried >= 2


@pytest.mark.parametrize("name", ["Q4_1", "Q8_0", "F16"])
@pytest.mark.parametrize("n", [1, 3, 4, 8, 13])
def test_fused_linears_are_their_parts(ops, name, n) -> None:
    inputs, _ = GOLDEN[f"linear/{name}"]
    plain = PlainOps()
    packed = weight(name, inputs["w"])
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, packed.columns), np.float32)
    bias, residual = rng.standard_normal(11, np.float32), rng.standard_normal((n, 11), np.float32)
    ours, twin = ops.matrix(packed), plain.matrix(packed)
    reversed_rows = weight(name, np.ascontiguousarray(inputs["w"][::-1]))
    other, other_twin = ops.matrix(reversed_rows), plain.matrix(reversed_rows)
    made = ops.linear(tensor(ops, x), ours, bias=ops.vector(bias), residual=tensor(ops, residual))
    assert same_bits(ops.host(made), plain.linear(x, twin, bias=bias, residual=residual))
    for out, judge in zip(ops.linears(tensor(ops, x), [ours, other] * 2), [twin, other_twin] * 2, strict=True):
        assert same_bits(ops.host(out), plain.linear(x, judge))
    for activation in ("silu", "gelu_tanh", "gelu_erf"):
        gated = ops.gated(tensor(ops, x), ours, other, activation)
        assert same_bits(ops.host(gated), plain.gated(x, twin, other_twin, activation)), activation


@pytest.mark.parametrize("n", [1, 3, 13])
def test_softcap_comes_last_in_a_linear(ops, n) -> None:
    inputs, _ = GOLDEN["linear/Q8_0"]
    packed = weight("Q8_0", inputs["w"])
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, packed.columns), np.float32)
    bias, residual = rng.standard_normal(11, np.float32), rng.standard_normal((n, 11), np.float32)
    made = ops.linear(
        tensor(ops, x), ops.matrix(packed), bias=ops.vector(bias), residual=tensor(ops, residual), softcap=3.0
    )
    twin = PlainOps()
    assert same_bits(ops.host(made), twin.linear(x, twin.matrix(packed), bias=bias, residual=residual, softcap=3.0))


def test_softcap_gives_the_frozen_bits(ops) -> None:
    inputs, expected = GOLDEN["function/softcap"]
    ours = ops.matrix(weight("F32", np.ones((1, 1), np.float32).view(np.uint8)))
    made = ops.host(ops.linear(tensor(ops, inputs["x"].reshape(-1, 1)), ours, softcap=30.0)).ravel()
    # The sum of a linear begins at +0, so that its zeros are positive.
    assert same_bits(made, np.where(inputs["x"] == 0, np.float32(0), expected["out"]))


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 300])
def test_linear_does_not_depend_on_how_many_rows_run_together(ops, rows) -> None:
    rng = np.random.default_rng(rows)
    data = rng.integers(0, 256, (rows, 11, 34), np.uint8)
    data[:, :, :2] = np.float16(0.01).view(np.uint16).reshape(1).view(np.uint8)
    matrix = ops.matrix(weight("Q8_0", data.reshape(rows, -1)))
    x = rng.standard_normal((70, 352), np.float32)
    whole = ops.host(ops.linear(tensor(ops, x), matrix)).copy()
    for first in (0, 1, 33):
        for n in (1, 2, 5, 37):
            part = ops.host(ops.linear(tensor(ops, x[first : first + n]), matrix))
            assert same_bits(part, whole[first : first + n])


@pytest.mark.parametrize("width", [37, 64])
def test_rms_norm_gives_the_frozen_bits(ops, width) -> None:
    inputs, expected = GOLDEN[f"rms_norm/{width}"]
    made = ops.rms_norm(tensor(ops, inputs["x"]), ops.vector(inputs["w"]), 1e-5)
    assert same_bits(ops.host(made), expected["out"])


def test_a_residual_is_added_to_a_norm(ops) -> None:
    rng = np.random.default_rng(3)
    x, residual, w = (rng.standard_normal(shape, np.float32) for shape in ((3, 37), (3, 37), 37))
    made = ops.rms_norm(tensor(ops, x), ops.vector(w), 1e-6, residual=tensor(ops, residual))
    assert same_bits(ops.host(made), PlainOps().rms_norm(x, w, 1e-6) + residual)


def test_rms_norm_over_heads_is_the_norm_of_each_head(ops) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4 * 16), np.float32)
    w = np.linspace(0.5, 2, 16, dtype=np.float32)
    assert same_bits(ops.host(ops.rms_norm(tensor(ops, x), ops.vector(w), 1e-6)), PlainOps().rms_norm(x, w, 1e-6))


def test_subnormals_are_kept_where_the_calling_thread_flushes_them() -> None:
    torch = pytest.importorskip("torch")
    x, w = np.full((64, 1024), 1e-30, np.float32), np.full(1024, 1e-12, np.float32)
    expected = PlainOps().rms_norm(x, w, 1e-5)
    assert 0 < expected.max() < np.finfo(np.float32).tiny
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormals")
    try:
        ops = NativeOps(3)
        made = ops.host(ops.rms_norm(tensor(ops, x), ops.vector(w), 1e-5)).copy()
        still_flushed = not (x[0] * w).any()
        ops.close()
    finally:
        torch.set_flush_denormal(False)
    assert same_bits(made, expected) and still_flushed


@pytest.mark.parametrize("style", ["interleaved", "halves"])
def test_rotary_gives_the_frozen_bits(ops, style) -> None:
    inputs, expected = GOLDEN[f"rotary/{style}"]
    made = ops.rotary(tensor(ops, inputs["x"]), 4, Rotary(inputs["cos"], inputs["sin"], style), 7)
    assert same_bits(ops.host(made), expected["out"])


def attend(ops, name: str, chunk: int) -> np.ndarray:
    """Fill the cache and attend, `chunk` rows a call; the rows before the case's own have zero queries."""
    c, (inputs, _) = ATTENTION[name], GOLDEN[f"attention/{name}"]
    length = c["start"] + c["n"]
    q = np.zeros((length, c["n_heads"], c["key"]), np.float32)
    q[c["start"] :] = inputs["q"]
    cache = ops.cache(CacheSpec(c["n_kv"], c["key"], c["value"]), length, c["kind"])
    spec = AttentionSpec(c["n_heads"], c["key"] ** -0.5, c.get("window"), c.get("softcap"))
    sinks = ops.vector(inputs["sinks"]) if c.get("sinks") else None
    rows = []
    for first in range(0, length, chunk):
        part = slice(first, min(first + chunk, length))
        out = ops.attention(
            *(tensor(ops, values[part]) for values in (q, inputs["k"], inputs["v"])), cache, spec, first, sinks
        )
        rows.append(ops.host(out).copy())
    return np.concatenate(rows)[c["start"] :].reshape(c["n"], c["n_heads"], c["value"])


CAUSAL = [name for name, c in ATTENTION.items() if c.get("causal", True)]


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_attention_gives_the_frozen_bits_whatever_the_chunk(ops, name, chunk) -> None:
    assert same_bits(attend(ops, name, chunk), GOLDEN[f"attention/{name}"][1]["out"])


@pytest.mark.parametrize("name", ["full", "window"])
def test_rows_see_positions_up_to_where_they_are_told(ops, name) -> None:
    c, (inputs, expected) = ATTENTION[name], GOLDEN[f"attention/{name}"]
    length = c["start"] + c["n"]
    until = range(c["start"] + 1, length + 1) if c.get("causal", True) else [length] * c["n"]
    cache = ops.cache(CacheSpec(c["n_kv"], c["key"], c["value"]), length, c["kind"])
    spec = AttentionSpec(c["n_heads"], c["key"] ** -0.5, c.get("window"))
    for first, stop in ((0, c["start"]), (c["start"], length)):
        if first < stop:
            q = inputs["q"] if first == c["start"] else np.zeros((stop, c["n_heads"], c["key"]), np.float32)
            ends = until if first == c["start"] else None
            rows = (tensor(ops, values) for values in (q, inputs["k"][first:stop], inputs["v"][first:stop]))
            made = ops.host(ops.attention(*rows, cache, spec, first, until=ends))
    assert same_bits(made.reshape(expected["out"].shape), expected["out"])


def test_a_key_too_large_for_float16_is_an_error(ops) -> None:
    cache = ops.cache(CacheSpec(1, 8, 8), 4, "f16")
    row = np.full((1, 8), 1e5, np.float32)
    small = np.ones((1, 8), np.float32)
    with pytest.raises(NumericsError, match="f32 cache"):
        ops.attention(tensor(ops, small), tensor(ops, row), tensor(ops, small), cache, AttentionSpec(1, 1.0), 0)


def test_an_encoding_without_a_kernel_is_refused_by_name(ops) -> None:
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_q\.weight is in Q8_K"):
        ops.matrix(Weight("blk.0.attn_q.weight", "Q8_K", 1, 256, np.zeros((1, 292), np.uint8)))


def test_embedding_rows_are_the_reference_decode(ops) -> None:
    data = GOLDEN["linear/Q4_1"][0]["w"]
    rows = weights.get("Q4_1").decode(data)[[3, 0, 3]]
    table = ops.matrix(weight("Q4_1", data))
    assert same_bits(ops.host(ops.embed(table, [3, 0, 3])), rows)
    assert same_bits(ops.host(ops.embed(table, [3, 0, 3], scale=33.3)), rows * np.float32(33.3))


def test_buffers_are_used_again() -> None:
    ops = NativeOps(1)
    x = tensor(ops, np.ones((1, 64), np.float32))
    w = ops.vector(np.ones(64, np.float32))
    ops.rms_norm(x, w, 1e-5)
    held = ops.nbytes
    for _ in range(10):
        ops.rms_norm(x, w, 1e-5)
    assert ops.nbytes == held
    ops.close()


def test_a_scale_of_nothing_leaves_nothing() -> None:
    rows = np.arange(64, dtype=np.float32).reshape(2, 32)
    for scale, wanted in ((None, [496, 1520]), (0.5, [248, 760]), (0.0, [0, 0])):
        with closing(NativeOps(1)) as ops:
            matrix = ops.matrix(Weight("w", "F32", 2, 32, rows.view(np.uint8), scale=scale))
            assert ops.host(ops.linear(tensor(ops, np.ones((1, 32), np.float32)), matrix)).tolist() == [wanted]


def test_what_the_library_works_with_is_counted() -> None:
    with closing(NativeOps(1)) as ops:
        matrix = ops.matrix(Weight("w", "F32", 2, 32, np.zeros((2, 128), np.uint8)))
        x = tensor(ops, np.ones((1, 32), np.float32))
        held = ops.nbytes
        made = ops.linear(x, matrix)
        assert ops.nbytes > held + made.n * made.width * 4
    assert ops.nbytes > 0


def test_memory_that_is_refused_is_told() -> None:
    with closing(NativeOps(1)) as ops, pytest.raises(BudgetError, match="no memory left"):
        ops.embed(ops.matrix(Weight("w", "F32", 1, 1 << 44, np.zeros((1, 1), np.uint8))), range(1 << 4))


def test_chunks_of_every_length_hold_less_than_twice_the_memory_of_the_longest() -> None:
    ops = NativeOps(1)
    w = ops.vector(np.ones(64, np.float32))
    held = []
    for n in range(128, 16, -1):
        ops.rms_norm(tensor(ops, np.ones((n, 64), np.float32)), w, 1e-5)
        held.append(ops.nbytes)
    assert held[-1] < 2 * held[0]
    ops.close()


def test_a_view_keeps_its_owner_alive() -> None:
    ops = NativeOps(1)
    view = ops.last(tensor(ops, np.arange(6, dtype=np.float32).reshape(3, 2)), 1)
    other = tensor(ops, np.zeros((3, 2), np.float32))
    assert ops.host(view).tolist() == [[4, 5]] and not ops.host(other).any()
    ops.close()


def test_closing_leaves_no_thread_behind() -> None:
    import os

    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted through /proc")
    before = len(os.listdir("/proc/self/task"))
    ops = NativeOps(4)
    assert len(os.listdir("/proc/self/task")) == before + 3
    ops.close()
    ops.close()
    assert len(os.listdir("/proc/self/task")) == before
    assert threading.active_count() >= 1


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_a_thread_count_that_cannot_be_is_refused(threads) -> None:
    with pytest.raises(SettingsError, match="between 1 and 256"):
        NativeOps(threads)


def test_an_unknown_instruction_set_is_refused_with_the_known_ones(monkeypatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ISA", "mmx")
    with pytest.raises(MillstreamError, match="portable"):
        NativeOps()
