"""The seam that an architecture joins: what the rest of the engine needs to know of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Handle, LayerCache, LayerSpec, Ops, Tensor


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

    def vector(self, name: str, *shape: int) -> Handle:
        """A small tensor, decoded: mostly [width], [channels, taps] of a convolution, [n_experts, rows] of biases."""
        ...

    def host(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        """The same as `vector` on the host, for what a model works out once, such as rotary frequencies."""
        ...


class Model(Protocol):
    """A loaded architecture. It owns no state between calls but its weight handles."""

    context_length: int
    """Positions it was built for: what was asked for, at most what the file claims."""
    vocabulary: int
    caches: tuple[LayerSpec, ...]
    """One per layer."""

    def hidden(self, ops: Ops, tokens: Sequence[int], start: int, caches: Sequence[LayerCache]) -> Tensor:
        """Run the tokens at positions `start …`, filling the caches: → [n, hidden_size], normed, ready for `logits`.

        The caller sees to it that they lie within `context_length`. For a given n the same operations are called on
        the same handles, whatever the tokens and `start` are, so that they can be recorded once and replayed.
        """
        ...

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocabulary]."""
        ...
