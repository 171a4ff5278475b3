"""The operations in plain torch over decoded weights: the judge of accuracy, bound to no contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from engine import weights
from engine.errors import NumericsError
from engine.kernels.kv import row_bytes
from engine.kernels.ops import (
    Activation,
    AttentionSpec,
    CacheSpec,
    LayerCache,
    LayerSpec,
    Pass,
    Rotary,
    Router,
    Stack,
    Weight,
)
from engine.kernels.reference_recurrent import ReferenceState, causal_convolution, delta_rule
from engine.kernels.state import StateSpec
from engine.kernels.walking import gathered, gathered_experts

Tensor = torch.Tensor
FORMATS: Final = MappingProxyType({"f16": torch.float16, "f32": torch.float32})
BLOCK: Final = 32
ACTIVATIONS: Final[Mapping[Activation, Callable[[Tensor], Tensor]]] = MappingProxyType(
    {
        "silu": functional.silu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "gelu_erf": functional.gelu,
        "sigmoid": torch.sigmoid,
        "relu_squared": lambda x: functional.relu(x).square(),
    }
)


def _gated(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    if activation == "swiglu_clamped":
        gate = gate.clamp(max=7.0)
        return (up.clamp(-7.0, 7.0) + 1) * (gate * torch.sigmoid(1.702 * gate))
    return ACTIVATIONS[activation](gate) * up


def _round_token(x: Tensor) -> Tensor:
    """Each row to int8 with one scale and back: `ActQuant` of Transformers' integration of BitNet."""
    step = 127 / x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)
    return (x * step).round().clamp(-128, 127) / step


@dataclass(frozen=True)
class ReferenceMatrix:
    """A weight, and its decoded values [rows, columns], none of one that is lent."""

    weight: Weight
    values: Tensor


@dataclass(frozen=True)
class ReferenceStack:
    """The weights of a mixture's experts, and their decoded values [n_experts, rows, columns], none of lent ones."""

    weight: Stack
    values: Tensor


@dataclass(frozen=True)
class ReferenceRouting:
    """Per token the chosen experts and their weights: both [n, k]."""

    ids: Tensor
    weights: Tensor


class FloatRows:
    """Keys or values [capacity, n_kv_heads, dim] in a number format of torch."""

    def __init__(self, capacity: int, heads: int, dim: int, dtype: torch.dtype) -> None:
        self._rows = torch.zeros(capacity, heads, dim, dtype=dtype)
        self.nbytes = self._rows.nbytes

    def put(self, rows: Tensor, start: int) -> bool:
        """Store rows [n, n_kv_heads · dim]: → whether a finite number became infinite."""
        place = self._rows[start : start + len(rows)]
        place.copy_(rows.reshape(place.shape))
        return bool((place.isinf() & rows.reshape(place.shape).isfinite()).any())

    def get(self, stop: int) -> Tensor:
        """The first `stop` positions."""
        return self._rows[:stop]


class BlockRows:
    """Keys or values [capacity, n_kv_heads, dim] in q8_0: for each block of 32 a float16 scale and int8 codes."""

    def __init__(self, capacity: int, heads: int, dim: int) -> None:
        self._scales = torch.zeros(capacity, heads, dim // BLOCK, 1, dtype=torch.float16)
        self._codes = torch.zeros(capacity, heads, dim // BLOCK, BLOCK, dtype=torch.int8)
        self.nbytes = self._scales.nbytes + self._codes.nbytes

    def put(self, rows: Tensor, start: int) -> bool:
        """Store rows [n, n_kv_heads · dim]: → whether the scale of a finite block became infinite."""
        scales, codes = (part[start : start + len(rows)] for part in (self._scales, self._codes))
        blocks = rows.to(torch.float32).reshape(codes.shape)
        finite = blocks.isfinite().all(dim=-1, keepdim=True)
        scales.copy_(blocks.abs().amax(dim=-1, keepdim=True) / 127)
        overflow = bool((scales.isinf() & finite).any())
        scales.masked_fill_(~finite, torch.nan)
        steps = (blocks / scales.to(torch.float32)).round().clamp(-127, 127)
        codes.copy_(steps.masked_fill(~finite | (scales == 0), 0))
        return overflow

    def get(self, stop: int) -> Tensor:
        """The first `stop` positions, float32."""
        return (self._scales[:stop].to(torch.float32) * self._codes[:stop]).flatten(start_dim=2)


class ReferenceCache:
    """One layer's keys and values as they are stored."""

    def __init__(self, spec: CacheSpec, capacity: int, kind: str) -> None:
        row_bytes(spec, kind)
        self.spec, self.capacity, self.kind = spec, capacity, kind
        self.keys = self._room(spec.key_dim)
        self.values = None if spec.latent else self._room(spec.value_dim)
        self.nbytes = self.keys.nbytes + (0 if self.values is None else self.values.nbytes)

    def _room(self, dim: int) -> FloatRows | BlockRows:
        if self.kind == "q8_0":
            return BlockRows(self.capacity, self.spec.n_kv_heads, dim)
        return FloatRows(self.capacity, self.spec.n_kv_heads, dim, FORMATS[self.kind])

    def store(self, k: Tensor, v: Tensor | None, start: int) -> None:
        """Round the rows of `k` and `v` into positions `start …`. Raises NumericsError where one becomes infinite."""
        assert (v is None) == (self.values is None)
        for what, rows, kept in (("key", k, self.keys), ("value", v, self.values)):
            if rows is not None and kept is not None and kept.put(rows, start):
                raise NumericsError(
                    f"A {what} is too large for the {self.kind} key-value cache; load the model with an f32 cache."
                )

    def get(self, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `stop` positions."""
        keys = self.keys.get(stop)
        return keys, keys[..., : self.spec.value_dim] if self.values is None else self.values.get(stop)


class ReferenceOps:
    """Computes in `dtype` throughout; keys and values alone are rounded, to the cache's number format."""

    threads = 1
    nbytes = 0

    def __init__(self, dtype: Literal["float32", "float64"] = "float32") -> None:
        self.name = f"reference-{dtype}"
        self._dtype: torch.dtype = getattr(torch, dtype)

    def matrix(self, weight: Weight) -> ReferenceMatrix:
        values = weights.get(weight.encoding).decode(weight.data)
        return ReferenceMatrix(weight, torch.tensor(values, dtype=self._dtype))

    def _gathered(self, matrix: ReferenceMatrix) -> ReferenceMatrix:
        lent = matrix.weight.lent
        return matrix if lent is None else self.matrix(gathered(matrix.weight, lent))

    def stack(self, weight: Stack) -> ReferenceStack:
        decode = weights.get(weight.encoding).decode
        if weight.lent is not None:
            return ReferenceStack(weight, torch.empty(0))
        values = np.stack([decode(data) for data in weight.data])
        if weight.scales is not None:
            values *= weight.scales[:, np.newaxis, np.newaxis]
        return ReferenceStack(weight, torch.tensor(values, dtype=self._dtype))

    def vector(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.tensor(values, dtype=self._dtype)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> ReferenceCache | ReferenceState:
        if isinstance(spec, StateSpec):
            return ReferenceState(spec, capacity, self._dtype)
        return ReferenceCache(spec, capacity, kind)

    def recorded(self, forward: Pass) -> Pass:
        return forward

    def embed(self, table: ReferenceMatrix, tokens: Sequence[int], *, scale: float = 1.0) -> Tensor:
        weight = table.weight
        if weight.lent is not None:
            rows = weights.get(weight.encoding).decode(weight.lent.lender.rows(weight.lent, tokens))
            return torch.tensor(rows, dtype=self._dtype) * scale
        return table.values[torch.tensor(tokens)] * scale

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, *, residual: Tensor | None = None) -> Tensor:
        groups = x.reshape(len(x), -1, len(weight))
        scale = torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + eps)
        y = (groups * scale * weight).reshape(x.shape)
        return y if residual is None else y + residual

    def linear(
        self,
        x: Tensor,
        weight: ReferenceMatrix,
        *,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        weight = self._gathered(weight)
        if weight.weight.activations == "token":
            x = _round_token(x)
        y = functional.linear(x, weight.values)
        if weight.weight.scale is not None:
            y = y * weight.weight.scale
        if bias is not None:
            y = y + bias
        if residual is not None:
            y = y + residual
        return y if softcap is None else softcap * torch.tanh(y / softcap)

    def linears(self, x: Tensor, weights: Sequence[ReferenceMatrix]) -> list[Tensor]:
        return [self.linear(x, weight) for weight in weights]

    def head_linears(self, x: Tensor, weight: ReferenceStack, *, transposed: bool = False) -> Tensor:
        if weight.weight.lent is not None:
            weight = self.stack(gathered(weight.weight, weight.weight.lent))
        runs = x.reshape(len(x), len(weight.values), -1)
        return torch.einsum("nha,hab->nhb" if transposed else "nha,hba->nhb", runs, weight.values).reshape(len(x), -1)

    def gated(self, x: Tensor, gate: ReferenceMatrix, up: ReferenceMatrix, activation: Activation = "silu") -> Tensor:
        return _gated(self.linear(x, gate), self.linear(x, up), activation)

    def route(self, logits: Tensor, router: Router, bias: Tensor | None = None) -> ReferenceRouting:
        scores = logits.softmax(dim=-1) if router.scores == "softmax" else logits.sigmoid()
        scores = scores.masked_fill(logits.isnan().any(dim=-1, keepdim=True), torch.nan)
        choice = (scores if bias is None else scores + bias).nan_to_num(-torch.inf)
        if router.groups > 1:
            grouped = choice.reshape(len(choice), router.groups, -1)
            marks = grouped.topk(min(router.marks, grouped.shape[-1]), dim=-1).values.sum(dim=-1)
            closed = marks.argsort(dim=-1, descending=True, stable=True)[:, router.groups_kept :]
            mask = torch.zeros_like(marks, dtype=torch.bool).scatter(-1, closed, True)
            choice = grouped.masked_fill(mask[..., None], -torch.inf).flatten(start_dim=-2)
        ids = choice.argsort(dim=-1, descending=True, stable=True)[:, : router.k]
        shares = scores.gather(-1, ids)
        if router.normalise:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return ReferenceRouting(ids, shares * router.scale)

    def experts(
        self,
        x: Tensor,
        routing: ReferenceRouting,
        gate: ReferenceStack,
        up: ReferenceStack,
        down: ReferenceStack,
        activation: Activation = "silu",
        gate_bias: Tensor | None = None,
        up_bias: Tensor | None = None,
        down_bias: Tensor | None = None,
    ) -> Tensor:
        if any(stack.weight.lent is not None for stack in (gate, up, down)):
            held = gathered_experts(gate.weight, up.weight, down.weight, np.unique(routing.ids.numpy()).tolist())
            gate, up, down = map(self.stack, held)

        def part(rows: Tensor, stack: ReferenceStack, bias: Tensor | None, expert: int) -> Tensor:
            own = None if bias is None else bias.reshape(stack.weight.n_experts, -1)[expert]
            return functional.linear(rows, stack.values[expert], own)

        out = x.new_zeros(len(x), down.weight.rows)
        for expert in range(gate.weight.n_experts):
            row, place = (routing.ids == expert).nonzero(as_tuple=True)
            made = _gated(part(x[row], gate, gate_bias, expert), part(x[row], up, up_bias, expert), activation)
            out[row] += routing.weights[row, place, None] * part(made, down, down_bias, expert)
        return out

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return functional.layer_norm(x, (x.shape[1],), weight, bias, eps)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        return x * factor

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        return ACTIVATIONS[activation](x)

    def gate(self, x: Tensor, y: Tensor, activation: Activation) -> Tensor:
        return _gated(x.repeat_interleave(y.shape[1] // x.shape[1], dim=1), y, activation)

    def pick(self, x: Tensor, groups: int, start: int, stop: int) -> Tensor:
        return x.reshape(len(x), groups, -1)[..., start:stop].reshape(len(x), -1)

    def spliced(self, x: Tensor, y: Tensor, groups: int) -> Tensor:
        return torch.cat([part.reshape(len(x), groups, -1) for part in (x, y)], dim=-1).reshape(len(x), -1)

    def folded(self, x: Tensor, rows: int) -> Tensor:
        return x.reshape(len(x) // rows, -1)

    def rotary(self, x: Tensor, n_heads: int, table: Rotary, start: int) -> Tensor:
        n = len(x)
        cos = torch.tensor(table.cos[start : start + n], dtype=self._dtype)[:, None]
        sin = torch.tensor(table.sin[start : start + n], dtype=self._dtype)[:, None]
        half = cos.shape[-1]
        if table.style == "interleaved":
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        else:
            first, second = slice(0, half), slice(half, 2 * half)
        heads = x.reshape(n, n_heads, -1)
        a, b = heads[..., first], heads[..., second]
        turned = heads.clone()
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
        return turned.reshape(x.shape)

    def attention(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: Tensor | None = None,
        until: Sequence[int] | None = None,
    ) -> Tensor:
        assert isinstance(cache, ReferenceCache)
        n, end = len(q), start + len(q) if until is None else max(until)
        if k is not None:
            cache.store(k, v, start)
        shared = spec.n_heads // cache.spec.n_kv_heads
        keys, values = (kept.to(self._dtype).repeat_interleave(shared, dim=1) for kept in cache.get(end))
        queries = q.reshape(n, spec.n_heads, cache.spec.key_dim) * spec.scale
        scores = torch.einsum("ihd,jhd->hij", queries, keys)
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        own, other = torch.arange(start, start + n)[:, None], torch.arange(end)
        hidden = other > own if until is None else other >= torch.tensor(until)[:, None]
        if spec.window is not None:
            hidden |= other <= own - spec.window
        scores = scores.masked_fill(hidden, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None, None].expand(-1, n, 1)], dim=-1)
        shares = scores.softmax(dim=-1)[..., :end]
        return torch.einsum("hij,jhd->ihd", shares, values).reshape(n, -1)

    def convolved(self, x: Tensor, taps: Tensor, state: LayerCache, start: int, activation: Activation) -> Tensor:
        assert isinstance(state, ReferenceState)
        return ACTIVATIONS[activation](causal_convolution(x, taps, state, start))

    def delta_rule(
        self, x: Tensor, a: Tensor, b: Tensor, rate: Tensor, bias: Tensor, state: LayerCache, start: int
    ) -> Tensor:
        assert isinstance(state, ReferenceState)
        return delta_rule(x, a, b, rate, bias, state, start)

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        assert isinstance(source, ReferenceState) and isinstance(target, ReferenceState)
        target.take(source)

    def last(self, x: Tensor, rows: int) -> Tensor:
        return x[len(x) - rows :]

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))

    def tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.tensor(values, dtype=self._dtype)

    def host(self, x: Tensor) -> npt.NDArray[np.float32]:
        return x.to(torch.float32).numpy()

    def close(self) -> None:
        """Nothing is held."""
