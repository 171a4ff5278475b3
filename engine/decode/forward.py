"""Running a model forward over one conversation's cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.decode.cache import KVCache
from engine.kernels.ops import Ops, Tensor
from engine.models.model import Model


@dataclass(frozen=True)
class Forward:
    """A model, the device that it runs on, and the cache that it fills."""

    model: Model
    ops: Ops
    cache: KVCache

    def advance(self, tokens: Sequence[int]) -> Tensor:
        """Compute the next positions for `tokens`: → hidden [n, hidden_size]. The cache holds them on return."""
        hidden = self.model.hidden(self.ops, tokens, len(self.cache), self.cache.layers)
        self.cache.extend(tokens)
        return hidden

    def logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [n, vocabulary] on the host, which later calls may overwrite."""
        logits: npt.NDArray[np.float32] = self.ops.host(self.model.logits(self.ops, hidden))
        return logits

    def next_logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [vocabulary] for the token after its last row."""
        row: npt.NDArray[np.float32] = self.logits(self.ops.last(hidden, 1))[0]
        return row
