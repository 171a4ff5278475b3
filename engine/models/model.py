"""The seam that an architecture joins: what the rest of the engine needs to know of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Handle, InputRounding, LayerCache, LayerSpec, Ops, Rotary, Tensor
from engine.models.rotary import Turn


class WeightLoader(Protocol):
    """Hands out weights by name, shape-checked, prepared for the `Ops` in use."""

    def has(self, name: str) -> bool: ...

    def matrix(
        self, name: str, rows: int, columns: int, *, activations: InputRounding = "blocks", scale: float | None = None
    ) -> Handle:
        """A vector counts as one row; `activations` and `scale` are those of `Weight`. Raises ModelFileError where the
        tensor is missing or has another shape."""
        ...

    def parts(
        self,
        name: str,
        rows: Sequence[int],
        columns: int,
        *,
        activations: InputRounding = "blocks",
        scale: float | None = None,
    ) -> list[Handle]:
        """Matrices of so many rows each, which lie one after the other in one tensor. Raises as `matrix` does."""
        ...

    def experts(
        self,
        name: str,
        n_experts: int,
        rows: Sequence[int],
        columns: int,
        *,
        scales: npt.NDArray[np.float32] | None = None,
    ) -> list[Handle]:
        """Stacks of so many rows each, which lie one after the other in every expert of one tensor [n_experts, sum of
        rows, columns], or in every head of one whose first two dimensions are one. `scales` are those of `Stack`.
        Raises as `matrix` does."""
        ...

    def vector(self, name: str, *shape: int) -> Handle:
        """A small tensor, decoded: mostly [width], [channels, taps] of a convolution, [n_experts, rows] of biases."""
        ...

    def made(self, values: npt.NDArray[np.float32]) -> Handle:
        """A vector of values that the model has worked out."""
        ...

    def skip(self, name: str) -> None:
        """The file may have this tensor, which the model does not use: it stays unread."""
        ...

    def host(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        """The same as `vector` on the host, for what a model works out once, such as rotary frequencies."""
        ...


Tables = Mapping[Turn, Rotary]
"""The rotary positions of one conversation, where pictures give it others than a model's own."""
OWN: Final[Tables] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Inset:
    """Rows of a pass, from its row `start` on, that stand for a picture.

    `features` is [rows, hidden_size · (1 + levels)]. The first hidden_size columns take the place of an embedding;
    those of level i are added to what layer i makes (DeepStack: Meng et al., arXiv:2406.04334).
    """

    start: int
    rows: int
    features: Tensor


class Model(Protocol):
    """A loaded architecture. It owns no state between calls but its weight handles."""

    context_length: int
    """Positions it was built for: what was asked for, at most what the file claims."""
    vocabulary: int
    caches: tuple[LayerSpec, ...]
    """One per layer that stores something, in the layers' order."""
    inset_width: int
    """Of a row of a picture's features."""
    turns: tuple[Turn, ...]
    """Those that pictures have places of their own in; none for most models."""

    @property
    def tables(self) -> Mapping[Any, Rotary]:
        """Its rotary positions, of `context_length` each."""
        ...

    def hidden(
        self,
        ops: Ops,
        tokens: Sequence[int],
        start: int,
        caches: Sequence[LayerCache],
        *,
        tables: Tables = OWN,
        insets: Sequence[Inset] = (),
    ) -> Tensor:
        """Run the tokens at positions `start …`, filling the caches: → [n, hidden_size], normed, ready for `logits`.

        Rows of `insets`, in ascending order, have negative numbers for tokens, and `tables` take the place of those of
        `turns`. The caller sees to it that they lie within `context_length`. For a given n without insets the same
        operations are called on the same handles, whatever the tokens and `start` are, so that they can be recorded
        once and replayed.
        """
        ...

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocabulary]."""
        ...
