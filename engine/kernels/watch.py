"""An `Ops` that looks at every result of another, to find where a model's numbers stop being finite."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import NumericsError
from engine.kernels.ops import (
    Activation,
    AttentionSpec,
    Handle,
    LayerCache,
    LayerSpec,
    Ops,
    Pass,
    Rotary,
    Router,
    Routing,
    Stack,
    Tensor,
    Weight,
)


class Watch:
    """Runs each operation on `ops` and raises NumericsError where a result holds NaN or infinity.

    The message names the weight and its layer. A norm or a rotary turn has no name of its own, so the message waits
    for the next operation that has one. `caches` are those of the layers in their order, `start` is the position of
    the first row, if it is to be told.
    """

    threads: int
    name: str

    def __init__(self, ops: Ops, caches: Sequence[LayerCache], start: int | None) -> None:
        self.name, self.threads = ops.name, ops.threads
        self._ops = ops
        self._caches = caches
        self._start = start
        self._unnamed: tuple[str, int] | None = None
        self._last = ""

    @property
    def nbytes(self) -> int:
        return self._ops.nbytes

    def matrix(self, weight: Weight) -> Handle:
        return self._ops.matrix(weight)

    def stack(self, weight: Stack) -> Handle:
        return self._ops.stack(weight)

    def vector(self, values: npt.NDArray[np.float32]) -> Handle:
        return self._ops.vector(values)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> LayerCache:
        return self._ops.cache(spec, capacity, kind)

    def recorded(self, forward: Pass) -> Pass:
        return forward

    def embed(self, table: Handle, tokens: Sequence[int], *, scale: float = 1.0) -> Tensor:
        return self._checked(self._ops.embed(table, tokens, scale=scale), _weight(table))

    def rms_norm(self, x: Tensor, weight: Handle, eps: float, *, residual: Tensor | None = None) -> Tensor:
        return self._noted(self._ops.rms_norm(x, weight, eps, residual=residual), "the norm")

    def linear(
        self,
        x: Tensor,
        weight: Handle,
        *,
        bias: Handle | None = None,
        residual: Tensor | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        name = _weight(weight)
        self._reached(name)
        made = self._ops.linear(x, weight, bias=bias, residual=residual, softcap=softcap)
        return self._checked(made, name if bias is None else f"{name} or its bias")

    def linears(self, x: Tensor, weights: Sequence[Handle]) -> list[Tensor]:
        self._reached(_weight(weights[0]))
        made = self._ops.linears(x, weights)
        return [self._checked(out, _weight(weight)) for out, weight in zip(made, weights, strict=True)]

    def head_linears(self, x: Tensor, weight: Handle, *, transposed: bool = False) -> Tensor:
        self._reached(_weight(weight))
        return self._checked(self._ops.head_linears(x, weight, transposed=transposed), _weight(weight))

    def gated(self, x: Tensor, gate: Handle, up: Handle, activation: Activation = "silu") -> Tensor:
        self._reached(_weight(gate))
        return self._checked(self._ops.gated(x, gate, up, activation), f"{_weight(gate)} or {_weight(up)}")

    def route(self, logits: Tensor, router: Router, bias: Handle | None = None) -> Routing:
        return self._ops.route(logits, router, bias)

    def experts(
        self,
        x: Tensor,
        routing: Routing,
        gate: Handle,
        up: Handle,
        down: Handle,
        activation: Activation = "silu",
        gate_bias: Handle | None = None,
        up_bias: Handle | None = None,
        down_bias: Handle | None = None,
    ) -> Tensor:
        self._reached(_weight(gate))
        biases = gate_bias, up_bias, down_bias
        made = self._ops.experts(x, routing, gate, up, down, activation, *biases)
        return self._checked(made, f"{_weight(gate)}, {_weight(up)} or {_weight(down)}")

    def layer_norm(self, x: Tensor, weight: Handle, bias: Handle, eps: float) -> Tensor:
        return self._noted(self._ops.layer_norm(x, weight, bias, eps), "the norm")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self._noted(self._ops.add(x, y), "the sum")

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        return self._noted(self._ops.scaled(x, factor), "the scaling")

    def activate(self, x: Tensor, activation: Activation) -> Tensor:
        return self._noted(self._ops.activate(x, activation), "the activation")

    def gate(self, x: Tensor, y: Tensor, activation: Activation) -> Tensor:
        return self._noted(self._ops.gate(x, y, activation), "the gate")

    def pick(self, x: Tensor, groups: int, start: int, stop: int) -> Tensor:
        return self._ops.pick(x, groups, start, stop)

    def spliced(self, x: Tensor, y: Tensor, groups: int) -> Tensor:
        return self._ops.spliced(x, y, groups)

    def folded(self, x: Tensor, rows: int) -> Tensor:
        return self._ops.folded(x, rows)

    def rotary(self, x: Tensor, n_heads: int, table: Rotary, start: int) -> Tensor:
        return self._noted(self._ops.rotary(x, n_heads, table, start), "the rotary positions")

    def attention(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: Handle | None = None,
        until: Sequence[int] | None = None,
    ) -> Tensor:
        # A layer that reads another's cache is known by the weight that made its queries.
        where = f"the attention of {self._block(cache)}" if k is not None else f"the attention after {self._last}"
        self._reached(where)
        made = self._ops.attention(q, k, v, cache, spec, start, sinks, until)
        return self._checked(made, where)

    def convolved(self, x: Tensor, taps: Handle, state: LayerCache, start: int, activation: Activation) -> Tensor:
        name = f"the convolution of {self._block(state)}"
        self._reached(name)
        return self._checked(self._ops.convolved(x, taps, state, start, activation), name)

    def delta_rule(
        self, x: Tensor, a: Tensor, b: Tensor, rate: Handle, bias: Handle, state: LayerCache, start: int
    ) -> Tensor:
        name = f"the delta rule of {self._block(state)}"
        self._reached(name)
        return self._checked(self._ops.delta_rule(x, a, b, rate, bias, state, start), name)

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        self._ops.copy_state(source, target)

    def last(self, x: Tensor, rows: int) -> Tensor:
        return self._ops.last(x, rows)

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        return self._ops.rows(x, start, stop)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        return self._ops.joined(parts)

    def tensor(self, values: npt.NDArray[np.float32]) -> Tensor:
        return self._ops.tensor(values)

    def host(self, x: Tensor) -> npt.NDArray[np.float32]:
        return self._ops.host(x)

    def close(self) -> None:
        """The watched `Ops` stays open."""

    def _block(self, cache: LayerCache) -> str:
        return f"blk.{next(index for index, known in enumerate(self._caches) if known is cache)}"

    def _bad_row(self, x: Tensor) -> int | None:
        finite = np.isfinite(self._ops.host(x)).all(axis=1)
        return None if finite.all() else int(finite.argmin())

    def _checked(self, x: Tensor, where: str) -> Tensor:
        row = self._bad_row(x)
        if row is not None:
            raise self._error(where, row)
        return x

    def _noted(self, x: Tensor, what: str) -> Tensor:
        row = self._bad_row(x) if self._unnamed is None else None
        if row is not None:
            self._unnamed = what, row
        return x

    def _reached(self, where: str) -> None:
        if self._unnamed is not None:
            what, row = self._unnamed
            raise self._error(f"{what} before {where}", row)
        self._last = where

    def _error(self, where: str, row: int) -> NumericsError:
        layer = re.search(r"\bblk\.(\d+)", where)
        place = f"layer {layer[1]} ({where})" if layer else where
        position = "" if self._start is None else f", first at position {self._start + row}"
        return NumericsError(
            f"The model computes NaN or infinity in {place}{position}: its file is damaged, or it overflows there. "
            "Compare the file's hash with its publisher's, or fetch it again."
        )


def _weight(handle: Handle) -> str:
    name: str = handle.weight.name
    return name
