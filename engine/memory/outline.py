"""A model without its weights: what its architecture makes of its file, before anything large is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import cast

import numpy as np
import numpy.typing as npt

from engine import models
from engine.formats.index import TensorIndex
from engine.kernels.ops import Handle, InputRounding, Ops
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model


def outline(index: TensorIndex, context: int) -> Model:
    """The model of a file, whose weights are all there and fit together, but cannot be run.

    Raises as `models.build`.
    """
    with closing(_Outline(index)) as store:
        return models.build(index.metadata, store, context=context)


class _Outline(WeightStore):
    """Checks every tensor that a model asks for as `WeightStore` does, and reads none but short vectors."""

    def __init__(self, index: TensorIndex) -> None:
        super().__init__(index, cast(Ops, None), Meter())  # no handle is made, so nothing runs

    def parts(
        self,
        name: str,
        rows: Sequence[int],
        columns: int,
        *,
        activations: InputRounding = "blocks",
        scale: float | None = None,
    ) -> list[Handle]:
        self._info(name, (sum(rows), columns))
        return [None] * len(rows)

    def vector(self, name: str, *shape: int) -> Handle:
        if name not in self._index.vectors:
            self._info(name, shape)

    def experts(
        self,
        name: str,
        n_experts: int,
        rows: Sequence[int],
        columns: int,
        *,
        scales: npt.NDArray[np.float32] | None = None,
    ) -> list[Handle]:
        self._stack_info(name, n_experts, sum(rows), columns)
        return [None] * len(rows)

    def made(self, values: npt.NDArray[np.float32]) -> Handle:
        return None

    def _place(self, nbytes: int) -> npt.NDArray[np.uint8]:
        return np.empty(nbytes, np.uint8)
