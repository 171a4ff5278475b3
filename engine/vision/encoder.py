"""What vision transformers are made of (Dosovitskiy et al., arXiv:2010.11929). Tensor names are those of GGUF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.cancel import Cancel
from engine.kernels.ops import Activation, AttentionSpec, CacheSpec, Handle, Ops, Tensor
from engine.models.model import WeightLoader

F32 = npt.NDArray[np.float32]

ROWS: Final = 1024
"""Patches that a feed-forward takes together: its intermediate rows are the widest of all."""

PAIRS: Final = 2**22
"""Of patches, one of which sees the other, that attention takes together."""


@dataclass(frozen=True)
class Linear:
    """x @ weightᵀ + bias."""

    weight: Handle
    bias: Handle

    @staticmethod
    def read(load: WeightLoader, name: str, rows: int, columns: int) -> Linear:
        return Linear(load.matrix(f"{name}.weight", rows, columns), load.vector(f"{name}.bias", rows))

    def run(self, ops: Ops, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return ops.linear(x, self.weight, bias=self.bias, residual=residual)


@dataclass(frozen=True)
class LayerNorm:
    weight: Handle
    bias: Handle
    eps: float

    @staticmethod
    def read(load: WeightLoader, name: str, width: int, eps: float) -> LayerNorm:
        return LayerNorm(load.vector(f"{name}.weight", width), load.vector(f"{name}.bias", width), eps)

    def run(self, ops: Ops, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class FeedForward:
    """Two linear layers on normed input, added back."""

    norm: LayerNorm
    up: Linear
    down: Linear
    activation: Activation = "gelu_tanh"

    @staticmethod
    def read(
        load: WeightLoader,
        layer: str,
        width: int,
        inner: int,
        eps: float,
        names: tuple[str, str] = ("ffn_up", "ffn_down"),
    ) -> FeedForward:
        return FeedForward(
            norm=LayerNorm.read(load, f"{layer}.ln2", width, eps),
            up=Linear.read(load, f"{layer}.{names[0]}", inner, width),
            down=Linear.read(load, f"{layer}.{names[1]}", width, inner),
        )

    def add(self, ops: Ops, x: Tensor, patches: int) -> Tensor:
        """x [patches, width] + what the block makes of it."""

        def some(rows: Tensor) -> Tensor:
            inner = ops.activate(self.up.run(ops, self.norm.run(ops, rows)), self.activation)
            return self.down.run(ops, inner, rows)

        return in_pieces(ops, x, patches, some)


class FullAttention:
    """Every patch of a picture sees all of them. Holds the keys and values of one layer at a time, as float32."""

    def __init__(
        self, ops: Ops, patches: int, n_heads: int, head_dim: int, scale: float, cancel: Cancel | None = None
    ) -> None:
        self._cache = ops.cache(CacheSpec(n_heads, head_dim, head_dim), patches, "f32")
        self._spec = AttentionSpec(n_heads, scale)
        self._patches = patches
        self._cancel = cancel

    def run(self, ops: Ops, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v [patches, n_heads · head_dim] → the same shape.

        One call for many patches could not be interrupted for minutes. A cancelled one raises `Cancelled`.
        """
        patches, some = self._patches, max(1, PAIRS // self._patches)
        if patches <= some:
            return ops.attention(q, k, v, self._cache, self._spec, 0, until=[patches] * patches)
        # This stores all keys and values; that each patch sees itself alone makes it cheap.
        ops.attention(q, k, v, self._cache, replace(self._spec, window=1), 0)
        parts = []
        for start in range(0, patches, some):
            if self._cancel is not None:
                self._cancel.check()
            stop = min(start + some, patches)
            rows, until = ops.rows(q, start, stop), [patches] * (stop - start)
            parts.append(ops.attention(rows, None, None, self._cache, self._spec, start, until=until))
        return ops.joined(parts)


def in_pieces(ops: Ops, x: Tensor, rows: int, run: Callable[[Tensor], Tensor]) -> Tensor:
    """`run` of at most ROWS of the `rows` of x at a time, which bounds what it holds and never changes a bit."""
    if rows <= ROWS:
        return run(x)
    return ops.joined([run(ops.rows(x, start, min(start + ROWS, rows))) for start in range(0, rows, ROWS)])


def pooled(values: F32, grid: tuple[int, int], side: int) -> F32:
    """The mean of each side × side patches of [rows · columns, width], row by row: summed row by row, then divided."""
    rows, columns = grid
    tiled = values.reshape(rows // side, side, columns // side, side, -1)
    total = np.zeros((rows // side, columns // side, values.shape[1]), np.float32)
    for row in range(side):
        for column in range(side):
            total += tiled[:, row, :, column]
    return (total / np.float32(side * side)).reshape(-1, values.shape[1])
