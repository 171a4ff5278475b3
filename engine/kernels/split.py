"""One `Ops` made of two: a device that holds a part of the weights, and the host that holds the rest.

Where a graphics card has no room for a mixture's experts, they are computed on the processor, in whose memory they lie,
and only activations cross. No weight ever does. What follows says where an operation runs:

* One with a matrix or a stack, where that was given to; `on_host` says which, by the weight's name.
* One with a cache, where that is: on the side of what was first written to it. So the cache of a layer whose
  projections are on the host is there, too.
* `tensor` on the host, which has the values already.
* Any other where the fewest bytes have to be carried to it, on the device where that is all one.
* A norm, and the choice of experts, on each side that wants the result. What crosses is then the norm's input, which
  the sum at a block's end wants on the same side.

A mixture's experts on the host thus cost a row's hidden values there, its router's logits where the router is on the
device, and hidden values back. So does each run of layers on the host, without the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import (
    Activation,
    AttentionSpec,
    LayerCache,
    LayerSpec,
    Ops,
    Pass,
    Rotary,
    Router,
    Stack,
    Tensor,
    Weight,
)
from engine.kernels.sides import (
    Carried,
    Remade,
    Side,
    Sides,
    SplitCache,
    SplitTensor,
    SplitVector,
    SplitWeight,
    Traffic,
)


def routed_experts(name: str) -> bool:
    """Whether a weight of this name, as GGUF files have them, is a mixture's experts: for `on_host`."""
    return "_exps." in name


class SplitOps:
    """Both follow CONTRACT.md, so the results do, whatever lies where. Closes both with itself.

    The matrices of a mixture's experts, which are used in one operation, belong on one side.
    """

    def __init__(self, device: Ops, host: Ops, on_host: Callable[[str], bool]) -> None:
        self.name = f"{device.name} and {host.name}"
        self.threads = max(device.threads, host.threads)  # they take turns
        self._sides = Sides(device, host)
        self._ops = self._sides.ops
        self._on_host = on_host
        self._used: set[Side] = set()

    @property
    def nbytes(self) -> int:
        return sum(ops.nbytes for ops in self._ops.values())

    @property
    def traffic(self) -> Traffic:
        """What has crossed so far, without what `host` fetched."""
        return self._sides.traffic

    def matrix(self, weight: Weight) -> SplitWeight:
        side = self._side_of(weight.name)
        return SplitWeight(side, self._ops[side].matrix(weight))

    def stack(self, weight: Stack) -> SplitWeight:
        side = self._side_of(weight.name)
        return SplitWeight(side, self._ops[side].stack(weight))

    def vector(self, values: npt.NDArray[np.float32]) -> SplitVector:
        return SplitVector(self._sides, values)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> SplitCache:
        return SplitCache(self._sides, spec, capacity, kind)

    def recorded(self, forward: Pass) -> Pass:
        """Recorded by the side that has all weights, if one has."""
        if len(self._used) != 1:
            return forward
        (side,) = self._used

        def alone(tokens: Sequence[int], start: int) -> Tensor:
            before = self.traffic
            made = forward(tokens, start).on(side)
            assert self.traffic == before, "a recording repeats what one side did"
            return made

        recorded = self._ops[side].recorded(alone)
        return lambda tokens, start: self._made(side, recorded(tokens, start))

    def embed(self, table: SplitWeight, tokens: Sequence[int], *, scale: float = 1.0) -> SplitTensor:
        return self._made(table.side, self._ops[table.side].embed(table.handle, tokens, scale=scale))

    def rms_norm(
        self, x: SplitTensor, weight: SplitVector, eps: float, *, residual: SplitTensor | None = None
    ) -> SplitTensor:
        if residual is None:
            return Remade(x, lambda side: self._ops[side].rms_norm(x.on(side), weight.on(side), eps))
        side = self._nearest(x, residual)
        made = self._ops[side].rms_norm(x.on(side), weight.on(side), eps, residual=residual.on(side))
        return self._made(side, made)

    def linear(
        self,
        x: SplitTensor,
        weight: SplitWeight,
        *,
        bias: SplitVector | None = None,
        residual: SplitTensor | None = None,
        softcap: float | None = None,
    ) -> SplitTensor:
        side = weight.side
        made = self._ops[side].linear(
            x.on(side), weight.handle, bias=_on(bias, side), residual=_on(residual, side), softcap=softcap
        )
        return self._made(side, made)

    def linears(self, x: SplitTensor, weights: Sequence[SplitWeight]) -> list[SplitTensor]:
        made: dict[int, SplitTensor] = {}
        for side in sorted({weight.side for weight in weights}):
            own = {index: weight.handle for index, weight in enumerate(weights) if weight.side == side}
            results = self._ops[side].linears(x.on(side), list(own.values()))
            made |= {index: self._made(side, result) for index, result in zip(own, results, strict=True)}
        return [made[index] for index in range(len(weights))]

    def head_linears(self, x: SplitTensor, weight: SplitWeight, *, transposed: bool = False) -> SplitTensor:
        side = weight.side
        return self._made(side, self._ops[side].head_linears(x.on(side), weight.handle, transposed=transposed))

    def gated(self, x: SplitTensor, gate: SplitWeight, up: SplitWeight, activation: Activation = "silu") -> SplitTensor:
        side = gate.side
        if up.side != side:
            return self.gate(self.linear(x, gate), self.linear(x, up), activation)
        return self._made(side, self._ops[side].gated(x.on(side), gate.handle, up.handle, activation))

    def route(self, logits: SplitTensor, router: Router, bias: SplitVector | None = None) -> SplitTensor:
        return Remade(logits, lambda side: self._ops[side].route(logits.on(side), router, _on(bias, side)))

    def experts(
        self,
        x: SplitTensor,
        routing: SplitTensor,
        gate: SplitWeight,
        up: SplitWeight,
        down: SplitWeight,
        activation: Activation = "silu",
        gate_bias: SplitVector | None = None,
        up_bias: SplitVector | None = None,
        down_bias: SplitVector | None = None,
    ) -> SplitTensor:
        side = gate.side
        assert up.side == down.side == side, "the matrices of a mixture's experts belong on one side"
        biases = (_on(bias, side) for bias in (gate_bias, up_bias, down_bias))
        stacks = gate.handle, up.handle, down.handle
        made = self._ops[side].experts(x.on(side), routing.on(side), *stacks, activation, *biases)
        return self._made(side, made)

    def layer_norm(self, x: SplitTensor, weight: SplitVector, bias: SplitVector, eps: float) -> SplitTensor:
        def make(side: Side) -> Tensor:
            return self._ops[side].layer_norm(x.on(side), weight.on(side), bias.on(side), eps)

        return Remade(x, make)

    def add(self, x: SplitTensor, y: SplitTensor) -> SplitTensor:
        side = self._nearest(x, y)
        return self._made(side, self._ops[side].add(x.on(side), y.on(side)))

    def scaled(self, x: SplitTensor, factor: float) -> SplitTensor:
        side = self._nearest(x)
        return self._made(side, self._ops[side].scaled(x.on(side), factor))

    def activate(self, x: SplitTensor, activation: Activation) -> SplitTensor:
        side = self._nearest(x)
        return self._made(side, self._ops[side].activate(x.on(side), activation))

    def gate(self, x: SplitTensor, y: SplitTensor, activation: Activation) -> SplitTensor:
        side = self._nearest(x, y)
        return self._made(side, self._ops[side].gate(x.on(side), y.on(side), activation))

    def pick(self, x: SplitTensor, groups: int, start: int, stop: int) -> SplitTensor:
        side = self._nearest(x)
        return self._made(side, self._ops[side].pick(x.on(side), groups, start, stop))

    def spliced(self, x: SplitTensor, y: SplitTensor, groups: int) -> SplitTensor:
        side = self._nearest(x, y)
        return self._made(side, self._ops[side].spliced(x.on(side), y.on(side), groups))

    def folded(self, x: SplitTensor, rows: int) -> SplitTensor:
        side = self._nearest(x)
        return self._made(side, self._ops[side].folded(x.on(side), rows))

    def rotary(self, x: SplitTensor, n_heads: int, table: Rotary, start: int) -> SplitTensor:
        side = self._nearest(x)
        return self._made(side, self._ops[side].rotary(x.on(side), n_heads, table, start))

    def attention(
        self,
        q: SplitTensor,
        k: SplitTensor | None,
        v: SplitTensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: SplitVector | None = None,
        until: Sequence[int] | None = None,
    ) -> SplitTensor:
        assert isinstance(cache, SplitCache)
        side = cache.side or self._nearest(*(x for x in (q, k, v) if x is not None))
        inputs = q.on(side), _on(k, side), _on(v, side)
        made = self._ops[side].attention(*inputs, cache.on(side), spec, start, _on(sinks, side), until)
        return self._made(side, made)

    def convolved(
        self, x: SplitTensor, taps: SplitVector, state: LayerCache, start: int, activation: Activation
    ) -> SplitTensor:
        assert isinstance(state, SplitCache)
        side = state.side or self._nearest(x)
        made = self._ops[side].convolved(x.on(side), taps.on(side), state.on(side), start, activation)
        return self._made(side, made)

    def delta_rule(
        self,
        x: SplitTensor,
        a: SplitTensor,
        b: SplitTensor,
        rate: SplitVector,
        bias: SplitVector,
        state: LayerCache,
        start: int,
    ) -> SplitTensor:
        assert isinstance(state, SplitCache)
        side = state.side or self._nearest(x, a, b)
        inputs = x.on(side), a.on(side), b.on(side), rate.on(side), bias.on(side)
        return self._made(side, self._ops[side].delta_rule(*inputs, state.on(side), start))

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        assert isinstance(source, SplitCache) and isinstance(target, SplitCache)
        if (side := source.side) is not None:  # otherwise it stands at position 0, where nobody asks what it holds
            self._ops[side].copy_state(source.on(side), target.on(side))

    def last(self, x: SplitTensor, rows: int) -> SplitTensor:
        return self.rows(x, x.shape[0] - rows, x.shape[0])

    def rows(self, x: SplitTensor, start: int, stop: int) -> SplitTensor:
        if (start, stop) == (0, x.shape[0]):
            return x
        side = self._nearest(x)
        return self._made(side, self._ops[side].rows(x.on(side), start, stop))

    def joined(self, parts: Sequence[SplitTensor]) -> SplitTensor:
        side = self._nearest(*parts)
        return self._made(side, self._ops[side].joined([part.on(side) for part in parts]))

    def tensor(self, values: npt.NDArray[np.float32]) -> SplitTensor:
        return self._made("host", self._ops["host"].tensor(values))

    def host(self, x: SplitTensor) -> npt.NDArray[np.float32]:
        side: Side = "device" if x.cost("host") else "host"
        return self._ops[side].host(x.on(side))

    def close(self) -> None:
        try:
            self._ops["device"].close()
        finally:
            self._ops["host"].close()

    def _side_of(self, name: str) -> Side:
        side: Side = "host" if self._on_host(name) else "device"
        self._used.add(side)
        return side

    def _nearest(self, *inputs: SplitTensor) -> Side:
        """Where the fewest bytes have to be carried to bring these together."""
        to_device, to_host = (sum(x.cost(side) for x in inputs) for side in self._ops)
        return "host" if to_host < to_device else "device"

    def _made(self, side: Side, x: Tensor) -> Carried:
        return Carried(self._sides, side, x)


def _on(value: SplitTensor | SplitVector | None, side: Side) -> Tensor:
    """What may be left out."""
    return None if value is None else value.on(side)
