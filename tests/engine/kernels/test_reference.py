"""The torch reference against Transformers, scaled_dot_product_attention and loops written out."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import product

import gguf
import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from engine.errors import NumericsError
from engine.kernels.ops import AttentionSpec, CacheSpec, Rotary, Weight
from engine.kernels.reference import ReferenceOps
from engine.models.rotary import Turn, inverse_frequencies
from tests.engine.kernels.cases import golden


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed(values: np.ndarray, encoding: str) -> tuple[Weight, np.ndarray]:
    """A weight in `encoding`, and the values that it then has."""
    kind = gguf.GGMLQuantizationType[encoding]
    data = gguf.quantize(values, kind)
    rows, columns = values.shape
    return Weight("w", encoding, rows, columns, data.view(np.uint8).reshape(rows, -1)), gguf.dequantize(data, kind)


@pytest.mark.parametrize("encoding", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_linear_and_embed_work_on_decoded_weights(encoding: str) -> None:
    ops = ReferenceOps("float64")
    weight, values = packed(draw(1, 5, 64).numpy(), encoding)
    handle = ops.matrix(weight)
    x = draw(2, 3, 64).double()
    np.testing.assert_allclose(ops.linear(x, handle), x.numpy() @ values.astype(np.float64).T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(ops.host(ops.embed(handle, [4, 0, 4])), values[[4, 0, 4]])


def test_linear_adds_bias_and_residual() -> None:
    ops = ReferenceOps()
    weight, values = packed(draw(1, 4, 32).numpy(), "F32")
    x, bias, residual = draw(2, 3, 32), draw(3, 4), draw(4, 3, 4)
    handle = ops.matrix(weight)
    plain = x.numpy() @ values.T
    with_bias = ops.linear(x, handle, bias=ops.vector(bias.numpy()))
    with_both = ops.linear(x, handle, bias=ops.vector(bias.numpy()), residual=residual)
    np.testing.assert_allclose(with_bias, plain + bias.numpy(), atol=1e-5)
    np.testing.assert_allclose(with_both, plain + bias.numpy() + residual.numpy(), atol=1e-5)
    first, second = ops.linears(x, [handle, handle])
    np.testing.assert_allclose(first, plain, atol=1e-5)
    np.testing.assert_array_equal(first, second)


def test_a_gate_is_its_formula() -> None:
    ops = ReferenceOps("float64")
    gate, gate_values = packed(draw(1, 6, 32).numpy(), "F32")
    up, up_values = packed(draw(2, 6, 32).numpy(), "F32")
    x = draw(3, 4, 32).double()
    g, u = x.numpy() @ gate_values.T.astype(np.float64), x.numpy() @ up_values.T.astype(np.float64)
    c = math.sqrt(2 / math.pi)
    formulas = {
        "silu": g / (1 + np.exp(-g)),
        "gelu_tanh": 0.5 * g * (1 + np.tanh(c * (g + 0.044715 * g**3))),
        "gelu_erf": 0.5 * g * (1 + np.vectorize(math.erf)(g / math.sqrt(2))),
    }
    for activation, formula in formulas.items():
        made = ops.gated(x, ops.matrix(gate), ops.matrix(up), activation)
        np.testing.assert_allclose(made, formula * u, rtol=1e-9, err_msg=activation)


def test_scales_residuals_and_caps_are_their_formulas() -> None:
    ops = ReferenceOps("float64")
    handle = ops.matrix(packed(draw(1, 6, 32).numpy(), "F32")[0])
    x, residual = draw(2, 4, 32).double(), draw(3, 4, 6).double()
    torch.testing.assert_close(ops.embed(handle, [2], scale=5.0), 5 * ops.embed(handle, [2]))
    made = ops.linear(x, handle, residual=residual, softcap=2.0)
    torch.testing.assert_close(made, 2 * torch.tanh((ops.linear(x, handle) + residual) / 2))
    weight = ops.vector(np.ones(6, np.float32))
    torch.testing.assert_close(
        ops.rms_norm(residual, weight, 1e-5, residual=residual), ops.rms_norm(residual, weight, 1e-5) + residual
    )


def test_rms_norm_agrees_with_transformers_over_rows_and_over_heads() -> None:
    ops = ReferenceOps()
    norm = LlamaRMSNorm(16, eps=1e-5)
    torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
    weight = ops.vector(norm.weight.detach().numpy())
    rows, heads = draw(2, 5, 16), draw(3, 5, 48)
    with torch.no_grad():
        torch.testing.assert_close(ops.rms_norm(rows, weight, 1e-5), norm(rows))
        torch.testing.assert_close(ops.rms_norm(heads, weight, 1e-5), norm(heads.view(5, 3, 16)).view(5, 48))


def test_rotary_in_halves_agrees_with_transformers() -> None:
    ops = ReferenceOps()
    table = Turn(inverse_frequencies(10000.0, 16), "halves").table(12)
    x = draw(1, 4, 3 * 16)
    cos, sin = (torch.tensor(np.concatenate([half, half], axis=-1)[5:9])[None] for half in (table.cos, table.sin))
    heads = x.view(1, 4, 3, 16).transpose(1, 2)
    turned, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    torch.testing.assert_close(ops.rotary(x, 3, table, 5), turned.transpose(1, 2).reshape(4, 48))


def test_interleaved_rotary_multiplies_complex_numbers() -> None:
    ops = ReferenceOps("float64")
    table = Turn(inverse_frequencies(10000.0, 16), "interleaved").table(12)
    x = draw(1, 4, 3 * 16).double()
    turns = torch.tensor(table.cos[5:9] + 1j * table.sin[5:9].astype(np.complex128))
    expected = torch.view_as_real(torch.view_as_complex(x.view(4, 3, 8, 2)) * turns[:, None]).reshape(4, 48)
    torch.testing.assert_close(ops.rotary(x, 3, table, 5), expected)


@pytest.mark.parametrize("style", ["halves", "interleaved"])
def test_elements_past_the_rotary_dimensions_stay(style: str) -> None:
    ops = ReferenceOps()
    narrow = Turn(inverse_frequencies(10000.0, 8), style).table(12)
    x = draw(1, 4, 2 * 16)
    turned = ops.rotary(x, 2, narrow, 3).view(4, 2, 16)
    heads = x.view(4, 2, 16)
    torch.testing.assert_close(turned[..., 8:], heads[..., 8:], rtol=0, atol=0)
    alone = ops.rotary(heads[..., :8].reshape(4, 16), 2, narrow, 3).view(4, 2, 8)
    torch.testing.assert_close(turned[..., :8], alone, rtol=0, atol=0)
    assert not torch.equal(turned[..., :8], heads[..., :8])


def test_a_rotary_turn_does_not_change_its_input() -> None:
    x = draw(1, 2, 8)
    before = x.clone()
    ReferenceOps().rotary(x, 1, Rotary(np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32), "halves"), 0)
    torch.testing.assert_close(x, before, rtol=0, atol=0)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_agrees_with_scaled_dot_product_attention(kv_heads: int) -> None:
    ops = ReferenceOps()
    cache = ops.cache(CacheSpec(kv_heads, 8, 6), 10, "f32")
    q, k, v = draw(1, 10, 4 * 8), draw(2, 10, kv_heads * 8), draw(3, 10, kv_heads * 6)
    by_head = (x.view(10, heads, -1).transpose(0, 1) for x, heads in ((q, 4), (k, kv_heads), (v, kv_heads)))
    expected = torch.nn.functional.scaled_dot_product_attention(*by_head, is_causal=True, enable_gqa=True, scale=0.3)
    spec = AttentionSpec(4, 0.3)
    parts = [ops.attention(q[a:b], k[a:b], v[a:b], cache, spec, a) for a, b in [(0, 4), (4, 5), (5, 10)]]
    torch.testing.assert_close(torch.cat(parts), expected.transpose(0, 1).reshape(10, 24))


@pytest.mark.parametrize(("window", "softcap"), [(3, None), (None, 2.0), (1, None), (4, 0.5), (100, None)])
def test_windows_and_softcap_are_their_formulas(window: int | None, softcap: float | None) -> None:
    ops = ReferenceOps("float64")
    q, k, v = draw(1, 9, 8).double(), draw(2, 9, 8).double(), draw(3, 9, 8).double()
    result = ops.attention(q, k, v, ops.cache(CacheSpec(1, 8, 8), 9, "f32"), AttentionSpec(1, 0.7, window, softcap), 0)
    k, v = k.float().double(), v.float().double()
    for row in range(9):
        seen = range(max(0, row - window + 1) if window else 0, row + 1)
        scores = [0.7 * float(q[row] @ k[j]) for j in seen]
        if softcap is not None:
            scores = [softcap * math.tanh(score / softcap) for score in scores]
        shares = [math.exp(score) for score in scores]
        expected = sum(share * v[j] for share, j in zip(shares, seen, strict=True)) / sum(shares)
        torch.testing.assert_close(result[row], expected)


def test_an_f16_cache_rounds_what_it_stores_and_counts_its_bytes() -> None:
    ops = ReferenceOps()
    spec = CacheSpec(1, 4, 4)
    halves, floats = ops.cache(spec, 6, "f16"), ops.cache(spec, 6, "f32")
    assert (halves.nbytes, floats.nbytes) == (6 * 8 * 2, 6 * 8 * 4)
    q, k, v = draw(1, 1, 4), draw(2, 1, 4), draw(3, 1, 4)
    alone = ops.attention(q, k, v, halves, AttentionSpec(1, 1.0), 0)
    np.testing.assert_array_equal(ops.host(alone)[0], v.numpy().astype(np.float16).astype(np.float32)[0])
    alone = ops.attention(q, k, v, floats, AttentionSpec(1, 1.0), 0)
    np.testing.assert_array_equal(ops.host(alone), v.numpy())


def test_a_sink_takes_its_share_of_the_weight_and_has_no_value() -> None:
    ops = ReferenceOps("float64")
    q, k, v = draw(1, 5, 2 * 8).double(), draw(2, 5, 8).double(), draw(3, 5, 8).double()
    sinks = ops.vector(np.array([0.5, -2], np.float32))
    result = ops.attention(q, k, v, ops.cache(CacheSpec(1, 8, 8), 5, "f32"), AttentionSpec(2, 0.7, window=3), 0, sinks)
    k, v = k.float().double(), v.float().double()
    for row, head in product(range(5), range(2)):
        seen = range(max(0, row - 2), row + 1)
        query = q[row, head * 8 : head * 8 + 8]
        shares = [math.exp(0.7 * float(query @ k[j])) for j in seen]
        total = sum(shares) + math.exp(float(sinks[head]))
        expected = sum(share * v[j] for share, j in zip(shares, seen, strict=True)) / total
        torch.testing.assert_close(result[row, head * 8 : head * 8 + 8], expected)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_cache_rounds_as_the_contract_says(kind: str, dtype: str) -> None:
    inputs, expected = golden()[f"cache/{kind}"]
    ops = ReferenceOps(dtype)
    rows = ops.vector(inputs["x"])
    n, width = rows.shape
    cache = ops.cache(CacheSpec(1, width, width), n, kind)
    ops.attention(torch.zeros(n, width, dtype=rows.dtype), rows, rows, cache, AttentionSpec(1, 1.0), 0)
    for kept in (cache.keys, cache.values):
        np.testing.assert_array_equal(kept.get(n).to(torch.float32).numpy().reshape(n, width), expected["out"])


@pytest.mark.parametrize(("kind", "largest"), [("f16", 65519.0), ("q8_0", 127 * 65519.0)])
@pytest.mark.parametrize("which", ["key", "value"])
def test_a_number_too_large_for_the_cache_is_an_error(which: str, kind: str, largest: float) -> None:
    ops = ReferenceOps()
    rows = {name: torch.ones(1, 32) for name in ("key", "value")}
    for value, fits in ((largest, True), (largest * 1.001, False)):
        rows[which][0, 3] = value
        cache = ops.cache(CacheSpec(1, 32, 32), 1, kind)
        with nullcontext() if fits else pytest.raises(NumericsError, match=f"{which} is too large .* {kind} .* f32"):
            ops.attention(rows["key"], *rows.values(), cache, AttentionSpec(1, 1.0), 0)
    ops.attention(rows["key"], *rows.values(), ops.cache(CacheSpec(1, 32, 32), 1, "f32"), AttentionSpec(1, 1.0), 0)


def test_last_takes_rows_from_the_end() -> None:
    ops = ReferenceOps()
    x = draw(1, 5, 2)
    assert torch.equal(ops.last(x, 2), x[3:])
    assert ops.last(x, 0).shape == (0, 2)


def test_rows_takes_rows_from_the_middle() -> None:
    x = draw(1, 5, 2)
    assert torch.equal(ReferenceOps().rows(x, 1, 3), x[1:3])


def test_float64_is_kept_until_the_host_asks() -> None:
    ops = ReferenceOps("float64")
    third = ops.vector(np.array([1 / 3], np.float32))
    assert third.dtype == torch.float64
    assert ops.host(third[None] / 3).dtype == np.float32
