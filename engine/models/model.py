"""The seam that an architecture joins: what the rest of the engine needs to know of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import CacheSpec, Handle, LayerCache, Ops, Tensor


class WeightLoader(Protocol):
    """Hands out weights by name, shape-checked, prepared for the `Ops` in use."""

    def has(self, name: str) -> bool: ...

    def matrix(self, name: str, rows: int, columns: int) -> Handle:
        """A vector counts as one row. Raises ModelFileError where the tensor is missing or has another shape."""
        ...

    def parts(self, name: str, rows: Sequence[int], columns: int) -> list[Handle]:
        """Matrices of so many rows each, which lie one after the other in one tensor. Raises as `matrix` does."""
        ...

    def experts(self, name: str, n_experts: int, rows: Sequence[int], columns: int) -> list[Handle]:
        """Stacks of so many rows each, which lie one after the other in every expert of one tensor [n_experts, sum of
        rows, columns]. Raises as `matrix` does."""
        ...

    def vector(self, name: str, width: int) -> Handle: ...

    def made(self, values: npt.NDArray[np.float32]) -> Handle:
        """A vector of values that the model has worked out."""
        ...

    def skip(self, name: str) -> None:
        """The file may have this tensor, which the model does not use: it stays unread."""
        ...

    def biases(self, name: str, n_experts: int, rows: int) -> Handle:
        """A tensor [n_experts, rows] as a vector, for `Ops.experts`. Raises as `matrix` does."""
        ...

    def host(self, name: str, width: int) -> npt.NDArray[np.float32]:
        """A decoded vector on the host, for what a model works out once, such as rotary frequencies."""
        ...


class Model(Protocol):
    """A loaded architecture. It owns no state between calls but its weight handles."""

    context_length: int
    """Positions it was built for: what was asked for, at most what the file claims."""
    vocabulary: int
    caches: tuple[CacheSpec, ...]
    """One per layer that stores keys and values, in the layers' order."""

    def hidden(self, ops: Ops, tokens: Sequence[int], start: int, caches: Sequence[LayerCache]) -> Tensor:
        """Run the tokens at positions `start …`, filling the caches: → [n, hidden_size], normed, ready for `logits`.

        The caller sees to it that they lie within `context_length`. For a given n the same operations are called on
        the same handles, whatever the tokens and `start` are, so that they can be recorded once and replayed.
        """
        ...

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocabulary]."""
        ...
