"""A model without its weights: what its architecture makes of its file, before anything large is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine import models
from engine.cancel import Cancel
from engine.formats.index import TensorIndex, TensorInfo
from engine.kernels.ops import InputRounding
from engine.memory.meter import Meter
from engine.memory.paper import PaperOps
from engine.memory.store import WeightStore
from engine.memory.uses import PaperVector, PaperWeight
from engine.models.model import Model


@dataclass(frozen=True)
class Outline:
    """A model without weights, the tensors that it was made of, and those of them that it uses as matrices or stacks,
    not as numbers."""

    model: Model
    used: frozenset[str]
    matrices: frozenset[str]


def outline(index: TensorIndex, context: int) -> Model:
    """The model of a file, whose weights are all there and fit together, but can be run by a `PaperOps` alone.

    Raises as `models.build`.
    """
    return whole_outline(index, context).model


def whole_outline(index: TensorIndex, context: int, cancel: Cancel | None = None) -> Outline:
    """The same with its tensors. `cancel` makes it raise `Cancelled`."""
    with closing(_Outline(index, cancel)) as store:
        model = models.build(index.metadata, store, context=context)
    return Outline(model, frozenset(store.used), frozenset(store.matrices))


class _Outline(WeightStore):
    """Checks every tensor that a model asks for as `WeightStore` does, and reads none but short vectors. Where
    these are not here, they are ones: no plan depends on them."""

    def __init__(self, index: TensorIndex, cancel: Cancel | None) -> None:
        super().__init__(index, PaperOps(1), Meter(), cancel=cancel)
        self.used: set[str] = set()
        self.matrices: set[str] = set()

    def _info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = super()._info(name, shape)
        self.used.add(name)
        return info

    def parts(
        self,
        name: str,
        rows: Sequence[int],
        columns: int,
        *,
        activations: InputRounding = "blocks",
        scale: float | None = None,
    ) -> list[PaperWeight]:
        encoding = self._info(name, (sum(rows), columns)).encoding
        self.matrices.add(name)
        return [
            PaperWeight(name, encoding, count, columns, sum(rows[:at]), activations=activations)
            for at, count in enumerate(rows)
        ]

    def vector(self, name: str, *shape: int) -> PaperVector:
        if name in self._index.vectors:
            return PaperVector("", math.prod(shape) * 4)
        return PaperVector(name, self._info(name, shape).nbytes)

    def host(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        if name in self._index.vectors or self._info(name, shape).path not in self._index.sizes:
            return super().host(name, *shape)
        return np.ones(shape, np.float32)

    def experts(
        self,
        name: str,
        n_experts: int,
        rows: Sequence[int],
        columns: int,
        *,
        scales: npt.NDArray[np.float32] | None = None,
    ) -> list[PaperWeight]:
        encoding = self._stack_info(name, n_experts, sum(rows), columns).encoding
        self.matrices.add(name)
        return [PaperWeight(name, encoding, count, columns, sum(rows[:at]), n_experts) for at, count in enumerate(rows)]
