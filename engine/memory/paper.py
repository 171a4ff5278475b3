"""An `Ops` on paper: it runs a pass on shapes alone, and says what memory it would take and which weights it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.kernels.kv import positions, row_bytes
from engine.kernels.native.recording import LONGEST
from engine.kernels.native.scratch import Scratch
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
    Tensor,
    Weight,
)
from engine.kernels.state import StateSpec
from engine.memory.paper_room import PaperRoom, PaperTensor, PaperView
from engine.memory.uses import PaperVector, PaperWeight, Use, VectorUse


@dataclass(frozen=True, eq=False)
class PaperCache:
    spec: LayerSpec
    capacity: int
    kind: str

    @property
    def nbytes(self) -> int:
        if isinstance(self.spec, StateSpec):
            return self.spec.nbytes
        return self.spec.n_kv_heads * positions(self.capacity) * sum(row_bytes(self.spec, self.kind))


@dataclass(frozen=True)
class PaperRouting:
    """Held while a pass holds it: `NativeRouting` on paper."""

    ids: PaperTensor
    weights: PaperTensor
    router: Router


@dataclass(frozen=True)
class Taken:
    """What passes took: rows, and what is worked out beside them."""

    rows: int
    scratch: Scratch

    def nbytes(self, context: int) -> int:
        """At the end of so many positions."""
        return self.rows + self.scratch.nbytes_after(context)


@dataclass
class PaperOps:
    """Takes and gives back room as `NativeOps` on so many threads does, in the same order.

    `records`: passes of few rows keep buffers of their own, as those do whose weights are all in memory.
    """

    threads: int
    records: bool = True
    name: str = "paper"
    uses: list[Use] = field(default_factory=list)
    """What was used since the list was last cleared, in order."""
    vectors: list[VectorUse] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._room = PaperRoom()
        self._rooms = [self._room]
        self._scratch = Scratch(self.threads)

    @property
    def nbytes(self) -> int:
        """Bytes that activations take, and what is worked out beside them, at most."""
        return self.taken().nbytes(0)

    def taken(self) -> Taken:
        """The same as it is now."""
        return Taken(sum(room.nbytes for room in self._rooms), self._scratch.frozen())

    def matrix(self, weight: Weight) -> PaperWeight:
        return PaperWeight(weight.name, weight.encoding, weight.rows, weight.columns, activations=weight.activations)

    def stack(self, weight: Stack) -> PaperWeight:
        return PaperWeight(weight.name, weight.encoding, weight.rows, weight.columns, matrices=weight.n_experts)

    def vector(self, values: npt.NDArray[np.float32]) -> PaperVector:
        return PaperVector("", values.nbytes)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> PaperCache:
        return PaperCache(spec, capacity, kind)

    def recorded(self, forward: Pass) -> Pass:
        outputs: dict[int, Tensor] = {}

        def run(tokens: Sequence[int], start: int) -> Tensor:
            n = len(tokens)
            if n > LONGEST or not self.records:
                return forward(tokens, start)
            if n not in outputs:
                own, self._room = self._room, PaperRoom()
                self._rooms.append(self._room)
                try:
                    outputs[n] = forward(tokens, start)
                finally:
                    self._room = own
            return outputs[n]

        return run

    def embed(self, table: PaperWeight, tokens: Sequence[int], *, scale: float = 1.0) -> PaperTensor:
        self.uses.append(Use("rows", (table,), len(tokens)))
        return self._room.take(len(tokens), table.columns)

    def rms_norm(
        self, x: PaperTensor, weight: PaperVector, eps: float, *, residual: PaperTensor | None = None
    ) -> PaperTensor:
        self._used(weight)
        return self._like(x)

    def linear(
        self,
        x: PaperTensor,
        weight: PaperWeight,
        *,
        bias: PaperVector | None = None,
        residual: PaperTensor | None = None,
        softcap: float | None = None,
    ) -> PaperTensor:
        self._used(bias)
        self.uses.append(Use("walk", (weight,)))
        out = self._room.take(x.n, weight.rows)
        x = self._input(x, weight)
        self._scratch.linear(x.n, [weight.shape])
        return out

    def linears(self, x: PaperTensor, weights: Sequence[PaperWeight]) -> list[PaperTensor]:
        if len({weight.input for weight in weights}) > 1:
            return [self.linear(x, weight) for weight in weights]
        x = self._input(x, weights[0])
        outs: list[PaperTensor] = []
        for first in range(0, len(weights), 3):
            some = weights[first : first + 3]
            self.uses += (Use("walk", (weight,)) for weight in some)
            outs += [self._room.take(x.n, weight.rows) for weight in some]
            self._scratch.linear(x.n, [weight.shape for weight in some])
        return outs

    def gated(self, x: PaperTensor, gate: PaperWeight, up: PaperWeight, activation: Activation = "silu") -> PaperTensor:
        if gate.input != up.input:
            return self.gate(self.linear(x, gate), self.linear(x, up), activation)
        self.uses.append(Use("walk", (gate, up)))
        x = self._input(x, gate)
        self._scratch.linear(x.n, [gate.shape, up.shape], gated=True)
        return self._room.take(x.n, gate.rows)

    def head_linears(self, x: PaperTensor, weight: PaperWeight, *, transposed: bool = False) -> PaperTensor:
        self.uses.append(Use("walk", (weight,)))
        self._scratch.heads(x.n, weight.shape, transposed=transposed)
        return self._room.take(x.n, weight.matrices * (weight.columns if transposed else weight.rows))

    def route(self, logits: PaperTensor, router: Router, bias: PaperVector | None = None) -> PaperRouting:
        self._used(bias)
        self._scratch.route(logits.width, router.groups)
        return PaperRouting(self._room.take(logits.n, router.k), self._room.take(logits.n, router.k), router)

    def experts(
        self,
        x: PaperTensor,
        routing: PaperRouting,
        gate: PaperWeight,
        up: PaperWeight,
        down: PaperWeight,
        activation: Activation = "silu",
        gate_bias: PaperVector | None = None,
        up_bias: PaperVector | None = None,
        down_bias: PaperVector | None = None,
    ) -> PaperTensor:
        k, count = routing.router.k, gate.matrices
        chosen = min(x.n * k, count)
        for bias in (gate_bias, up_bias, down_bias):
            if bias is not None:
                self._used(PaperVector(bias.tensor, bias.nbytes * chosen // count))
        self.uses.append(Use("experts", (gate, up, down), chosen))
        self._scratch.experts(x.n, k, gate.shape, up.shape, down.shape)
        return self._room.take(x.n, down.rows)

    def layer_norm(self, x: PaperTensor, weight: PaperVector, bias: PaperVector, eps: float) -> PaperTensor:
        self._used(weight, bias)
        return self._like(x)

    def add(self, x: PaperTensor, y: PaperTensor) -> PaperTensor:
        return self._like(x)

    def scaled(self, x: PaperTensor, factor: float) -> PaperTensor:
        return self._like(x)

    def activate(self, x: PaperTensor, activation: Activation) -> PaperTensor:
        return self._like(x)

    def gate(self, x: PaperTensor, y: PaperTensor, activation: Activation) -> PaperTensor:
        return self._like(y)

    def pick(self, x: PaperTensor, groups: int, start: int, stop: int) -> PaperTensor:
        return self._room.take(x.n, groups * (stop - start))

    def spliced(self, x: PaperTensor, y: PaperTensor, groups: int) -> PaperTensor:
        return self._room.take(x.n, x.width + y.width)

    def folded(self, x: PaperTensor, rows: int) -> PaperTensor:
        return PaperView(x, x.n // rows, x.width * rows)

    def rotary(self, x: PaperTensor, n_heads: int, table: Rotary, start: int) -> PaperTensor:
        return self._like(x)

    def attention(
        self,
        q: PaperTensor,
        k: PaperTensor | None,
        v: PaperTensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: PaperVector | None = None,
        until: Sequence[int] | None = None,
    ) -> PaperTensor:
        assert isinstance(cache.spec, CacheSpec)
        self._used(sinks)
        self._scratch.attention(q.n, start, spec.n_heads, cache.spec)
        return self._room.take(q.n, spec.n_heads * cache.spec.value_dim)

    def convolved(
        self, x: PaperTensor, taps: PaperVector, state: LayerCache, start: int, activation: Activation
    ) -> PaperTensor:
        self._used(taps)
        return self._like(x)

    def delta_rule(
        self,
        x: PaperTensor,
        a: PaperTensor,
        b: PaperTensor,
        rate: PaperVector,
        bias: PaperVector,
        state: LayerCache,
        start: int,
    ) -> PaperTensor:
        assert isinstance(state.spec, StateSpec)
        self._used(rate, bias)
        self._scratch.delta_rule(state.spec)
        return self._room.take(x.n, state.spec.n_heads * state.spec.value_dim)

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        pass

    def last(self, x: PaperTensor, rows: int) -> PaperTensor:
        return self.rows(x, x.n - rows, x.n)

    def rows(self, x: PaperTensor, start: int, stop: int) -> PaperTensor:
        return x if (start, stop) == (0, x.n) else PaperView(x, stop - start, x.width)

    def joined(self, parts: Sequence[PaperTensor]) -> PaperTensor:
        return self._room.take(sum(part.n for part in parts), parts[0].width)

    def tensor(self, values: npt.NDArray[np.float32]) -> PaperTensor:
        return self._room.take(*values.shape)

    def host(self, x: PaperTensor) -> npt.NDArray[np.float32]:
        """Zeros, which take no memory."""
        return np.broadcast_to(np.zeros((), np.float32), (x.n, x.width))

    def close(self) -> None:
        pass

    def _like(self, x: PaperTensor) -> PaperTensor:
        return self._room.take(x.n, x.width)

    def _input(self, x: PaperTensor, weight: PaperWeight) -> PaperTensor:
        """Whether ternary rows have one scale each, which saves this, is only seen once they are read."""
        return self._like(x) if weight.activations == "token" else x

    def _used(self, *vectors: PaperVector | None) -> None:
        self.vectors += (VectorUse(vector.tensor, vector.nbytes) for vector in vectors if vector and vector.tensor)
