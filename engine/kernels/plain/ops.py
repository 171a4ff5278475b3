"""`Ops` in numpy, to the bit of CONTRACT.md: the twin that every fast kernel is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from engine import weights
from engine.kernels.ops import Activation, AttentionSpec, LayerCache, LayerSpec, Pass, Rotary, Router, Stack, Weight
from engine.kernels.plain import functions
from engine.kernels.plain.attention import PlainCache, attention
from engine.kernels.plain.experts import Routing, mixed, routed
from engine.kernels.plain.functions import F32
from engine.kernels.plain.linear import (
    linear_bitnet,
    linear_float,
    linear_packed,
    linear_transposed,
    quantise,
    round_token,
)
from engine.kernels.plain.normalise import layer_norm, rms_norm, rotary
from engine.kernels.plain.recurrent import PlainState, causal_convolution, delta_rule
from engine.kernels.state import StateSpec
from engine.kernels.ternary import row_scales
from engine.kernels.walking import gathered, gathered_experts
from engine.weights.encoding import Units

ACTIVATIONS: Final[Mapping[Activation, Callable[[F32], F32]]] = MappingProxyType(
    {
        "silu": functions.silu,
        "gelu_tanh": functions.gelu_tanh,
        "gelu_erf": functions.gelu_erf,
        "sigmoid": functions.sigmoid,
        "relu_squared": functions.relu_squared,
    }
)


@np.errstate(all="ignore")
def gated(gate: F32, up: F32, activation: Activation) -> F32:
    """activation(gate)·up, or the clamped SwiGLU of both."""
    if activation == "swiglu_clamped":
        return functions.swiglu_clamped(gate, up, 1.702, 7.0)
    return ACTIVATIONS[activation](gate) * up


@dataclass(frozen=True)
class PlainMatrix:
    """A weight, its contract view for packed encodings, its float rows for the others; the scales of its rows where
    its products are those of ternary codes with a token's int8. Of one that is lent, neither."""

    weight: Weight
    units: Units | None
    floats: F32 | None
    row_scales: F32 | None = None


@dataclass(frozen=True)
class PlainStack:
    """The weights of a mixture's experts, and a matrix for each unless they are lent."""

    weight: Stack
    matrices: tuple[PlainMatrix, ...]


class PlainOps:
    """Every method follows the contract with whole-array numpy operations; nothing is fused, nothing is fast."""

    name = "plain"
    threads = 1
    nbytes = 0

    def matrix(self, weight: Weight) -> PlainMatrix:
        encoding = weights.get(weight.encoding)
        if weight.lent is not None:
            return PlainMatrix(weight, None, None)
        if weights.is_packed(encoding):
            return PlainMatrix(weight, encoding.units(weight.data), None, row_scales(weight))
        return PlainMatrix(weight, None, encoding.decode(weight.data))

    def stack(self, weight: Stack) -> PlainStack:
        if weight.lent is not None:
            weights.get(weight.encoding)
            return PlainStack(weight, ())
        scales = [None] * weight.n_experts if weight.scales is None else weight.scales.tolist()
        each = (
            Weight(weight.name, weight.encoding, weight.rows, weight.columns, data, scale=scale)
            for data, scale in zip(weight.data, scales, strict=True)
        )
        return PlainStack(weight, tuple(map(self.matrix, each)))

    def _gathered(self, matrix: PlainMatrix) -> PlainMatrix:
        lent = matrix.weight.lent
        return matrix if lent is None else self.matrix(gathered(matrix.weight, lent))

    def vector(self, values: F32) -> F32:
        return np.ascontiguousarray(values, np.float32)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> PlainCache | PlainState:
        return PlainState(spec, capacity) if isinstance(spec, StateSpec) else PlainCache(spec, capacity, kind)

    def recorded(self, forward: Pass) -> Pass:
        return forward

    @np.errstate(all="ignore")
    def embed(self, table: PlainMatrix, tokens: Sequence[int], *, scale: float = 1.0) -> F32:
        weight = table.weight
        rows = weight.data[np.asarray(tokens)] if weight.lent is None else weight.lent.lender.rows(weight.lent, tokens)
        return weights.get(weight.encoding).decode(rows) * np.float32(scale)

    @np.errstate(all="ignore")
    def rms_norm(self, x: F32, weight: F32, eps: float, *, residual: F32 | None = None) -> F32:
        out = rms_norm(x.reshape(x.shape[0], -1, weight.size), weight, eps).reshape(x.shape)
        return out if residual is None else out + residual

    @np.errstate(all="ignore")
    def linear(
        self,
        x: F32,
        weight: PlainMatrix,
        *,
        bias: F32 | None = None,
        residual: F32 | None = None,
        softcap: float | None = None,
    ) -> F32:
        out = self._products(x, self._gathered(weight))
        if weight.weight.scale is not None:
            out = out * np.float32(weight.weight.scale)
        if bias is not None:
            out = out + bias
        if residual is not None:
            out = out + residual
        return out if softcap is None else functions.softcap(out, softcap)

    def _products(self, x: F32, weight: PlainMatrix) -> F32:
        if weight.row_scales is not None:
            assert weight.units is not None
            return linear_bitnet(x, weight.units.codes.reshape(len(weight.row_scales), -1), weight.row_scales)
        if weight.weight.activations == "token":
            x = round_token(x)
        if weight.units is not None:
            return linear_packed(quantise(x), weight.units)
        assert weight.floats is not None
        return linear_float(x, weight.floats)

    def linears(self, x: F32, weights: Sequence[PlainMatrix]) -> list[F32]:
        return [self.linear(x, weight) for weight in weights]

    def head_linears(self, x: F32, weight: PlainStack, *, transposed: bool = False) -> F32:
        def part(run: F32, matrix: PlainMatrix) -> F32:
            if not transposed:
                return self.linear(run, matrix)
            return linear_transposed(run, weights.get(matrix.weight.encoding).decode(matrix.weight.data))

        if weight.weight.lent is not None:
            weight = self.stack(gathered(weight.weight, weight.weight.lent))
        runs = np.split(x, weight.weight.n_experts, axis=1)
        parts = [part(run, matrix) for run, matrix in zip(runs, weight.matrices, strict=True)]
        return np.concatenate(parts, axis=1)

    def gated(self, x: F32, gate: PlainMatrix, up: PlainMatrix, activation: Activation = "silu") -> F32:
        return gated(self.linear(x, gate), self.linear(x, up), activation)

    def route(self, logits: F32, router: Router, bias: F32 | None = None) -> Routing:
        return routed(logits, router, bias)

    def experts(
        self,
        x: F32,
        routing: Routing,
        gate: PlainStack,
        up: PlainStack,
        down: PlainStack,
        activation: Activation = "silu",
        gate_bias: F32 | None = None,
        up_bias: F32 | None = None,
        down_bias: F32 | None = None,
    ) -> F32:
        if any(stack.weight.lent is not None for stack in (gate, up, down)):
            held = gathered_experts(gate.weight, up.weight, down.weight, np.unique(routing.ids).tolist())
            gate, up, down = map(self.stack, held)

        def one(number: int, rows: F32) -> F32:
            def part(x: F32, stack: PlainStack, bias: F32 | None) -> F32:
                own = None if bias is None else bias.reshape(stack.weight.n_experts, -1)[number]
                return self.linear(x, stack.matrices[number], bias=own)

            made = gated(part(rows, gate, gate_bias), part(rows, up, up_bias), activation)
            return part(made, down, down_bias)

        return mixed(x, routing, down.weight.rows, one)

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        return layer_norm(x, weight, bias, eps)

    @np.errstate(all="ignore")
    def add(self, x: F32, y: F32) -> F32:
        return x + y

    @np.errstate(all="ignore")
    def scaled(self, x: F32, factor: float) -> F32:
        return x * np.float32(factor)

    def activate(self, x: F32, activation: Activation) -> F32:
        return ACTIVATIONS[activation](x)

    def gate(self, x: F32, y: F32, activation: Activation) -> F32:
        return gated(np.repeat(x, y.shape[1] // x.shape[1], axis=1), y, activation)

    def pick(self, x: F32, groups: int, start: int, stop: int) -> F32:
        return x.reshape(x.shape[0], groups, -1)[..., start:stop].reshape(x.shape[0], -1)

    def spliced(self, x: F32, y: F32, groups: int) -> F32:
        runs = [part.reshape(x.shape[0], groups, -1) for part in (x, y)]
        return np.concatenate(runs, axis=-1).reshape(x.shape[0], -1)

    def folded(self, x: F32, rows: int) -> F32:
        return x.reshape(x.shape[0] // rows, -1)

    def rotary(self, x: F32, n_heads: int, table: Rotary, start: int) -> F32:
        return rotary(x, n_heads, table, start)

    def attention(
        self,
        q: F32,
        k: F32 | None,
        v: F32 | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: F32 | None = None,
        until: Sequence[int] | None = None,
    ) -> F32:
        assert isinstance(cache, PlainCache)
        if k is not None:
            cache.store(k, v, start)
        n, stop = q.shape[0], start + q.shape[0] if until is None else max(until)
        heads = q.reshape(n, spec.n_heads, -1)
        return attention(heads, cache.keys[:stop], cache.values[:stop], spec, start, sinks, until).reshape(n, -1)

    def convolved(self, x: F32, taps: F32, state: LayerCache, start: int, activation: Activation) -> F32:
        assert isinstance(state, PlainState)
        before = state.inputs if start else np.zeros_like(state.inputs)
        out, state.inputs = causal_convolution(x, taps, before)
        return ACTIVATIONS[activation](out)

    def delta_rule(self, x: F32, a: F32, b: F32, rate: F32, bias: F32, state: LayerCache, start: int) -> F32:
        assert isinstance(state, PlainState)
        before = state.memory if start else np.zeros_like(state.memory)
        out, state.memory = delta_rule(x, a, b, rate, bias, state.spec, before)
        return out

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        assert isinstance(source, PlainState) and isinstance(target, PlainState)
        target.take(source)

    def last(self, x: F32, rows: int) -> F32:
        return x[x.shape[0] - rows :]

    def rows(self, x: F32, start: int, stop: int) -> F32:
        return x[start:stop]

    def joined(self, parts: Sequence[F32]) -> F32:
        return np.concatenate(parts)

    def tensor(self, values: F32) -> F32:
        return np.array(values, np.float32)

    def host(self, x: F32) -> npt.NDArray[np.float32]:
        return x

    def close(self) -> None:
        pass
