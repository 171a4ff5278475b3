"""Two devices side by side: what is on which, and what is carried from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from engine.kernels.kv import positions, row_bytes
from engine.kernels.ops import Handle, LayerCache, LayerSpec, Ops, Tensor
from engine.kernels.state import StateSpec

Side = Literal["device", "host"]
OTHER: Final[Mapping[Side, Side]] = MappingProxyType({"device": "host", "host": "device"})


@dataclass(frozen=True)
class Traffic:
    """Bytes of activations that were carried to each side."""

    to_device: int = 0
    to_host: int = 0


class Sides:
    """The two, and the count of what crosses."""

    def __init__(self, device: Ops, host: Ops) -> None:
        self.ops: Mapping[Side, Ops] = MappingProxyType({"device": device, "host": host})
        self._carried: dict[Side, int] = {"device": 0, "host": 0}

    @property
    def traffic(self) -> Traffic:
        return Traffic(self._carried["device"], self._carried["host"])

    def carried(self, x: Tensor, to: Side) -> Tensor:
        """A tensor of this side with the values of x, a tensor of the other."""
        values = self.ops[OTHER[to]].host(x)
        self._carried[to] += values.nbytes
        return self.ops[to].tensor(values)


class Carried:
    """An activation that is on one side, or on both once the other has wanted it."""

    def __init__(self, sides: Sides, side: Side, x: Tensor) -> None:
        self.shape: tuple[int, ...] = tuple(x.shape)
        self._sides = sides
        self._on: dict[Side, Tensor] = {side: x}

    def cost(self, side: Side) -> int:
        """Bytes to be carried until it is there."""
        return 0 if side in self._on else 4 * self.shape[0] * self.shape[1]

    def on(self, side: Side) -> Tensor:
        if side not in self._on:
            self._on[side] = self._sides.carried(self._on[OTHER[side]], side)
        return self._on[side]


class Remade:
    """What each side makes of an activation for itself, once it is wanted there.

    So it is its source that crosses, which other operations of that side often want, too.
    """

    def __init__(self, source: SplitTensor, make: Callable[[Side], Tensor]) -> None:
        self.shape: tuple[int, ...] = source.shape
        self._source = source
        self._make = make
        self._on: dict[Side, Tensor] = {}

    def cost(self, side: Side) -> int:
        return 0 if side in self._on else self._source.cost(side)

    def on(self, side: Side) -> Tensor:
        if side not in self._on:
            self._on[side] = self._make(side)
        return self._on[side]


SplitTensor = Carried | Remade


@dataclass(frozen=True)
class SplitWeight:
    """A matrix or a stack, and the side that it was given to."""

    side: Side
    handle: Handle

    @property
    def weight(self) -> object:
        return self.handle.weight


@dataclass(frozen=True)
class SplitVector:
    """Small values, which each side that uses them is given."""

    sides: Sides
    values: npt.NDArray[np.float32]
    _on: dict[Side, Handle] = field(default_factory=dict)

    def on(self, side: Side) -> Handle:
        if side not in self._on:
            self._on[side] = self.sides.ops[side].vector(self.values)
        return self._on[side]


class SplitCache:
    """One layer's cache or state, made on the side of what is first written to it, where it stays.

    That is where the layer's projections are, which nobody says beforehand. `side` is `None` until then.
    """

    def __init__(self, sides: Sides, spec: LayerSpec, capacity: int, kind: str) -> None:
        """Raises SettingsError where the kind cannot hold keys or values of these widths."""
        self.spec, self.capacity = spec, capacity
        self.side: Side | None = None
        self._sides = sides
        self._made: LayerCache | None = None
        if isinstance(spec, StateSpec):
            self.kind, self._nbytes = "f32", spec.nbytes
        else:
            self.kind, self._nbytes = kind, positions(capacity) * spec.n_kv_heads * sum(row_bytes(spec, kind))

    @property
    def nbytes(self) -> int:
        return self._nbytes if self._made is None else self._made.nbytes

    def on(self, side: Side) -> LayerCache:
        """Raises BudgetError where it is not made yet and there is no memory for it."""
        if self._made is None:
            self._made = self._sides.ops[side].cache(self.spec, self.capacity, self.kind)
            self.side = side
        assert side == self.side, "a cache stays where it is"
        return self._made
