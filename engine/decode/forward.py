"""Running a model forward over one conversation's cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.decode.cache import KVCache
from engine.decode.finite import not_finite
from engine.errors import ContextError
from engine.kernels.ops import Ops, Tensor
from engine.models.model import Model


class Forward:
    """A model, the device that it runs on, and the cache that it fills."""

    def __init__(self, model: Model, ops: Ops, cache: KVCache) -> None:
        self.model = model
        self.ops = ops
        self.cache = cache
        self._hidden = ops.recorded(lambda tokens, start: model.hidden(ops, tokens, start, cache.layers))

    def advance(self, tokens: Sequence[int]) -> Tensor:
        """Compute the next positions for `tokens`: → hidden [n, hidden_size]. The cache holds them on return.

        Raises ContextError, with the cache as it was, where they reach past the model's context or the cache's end.
        After any other exception the cache holds what it held, or less where the model has recurrent layers.
        """
        needed, room = len(self.cache) + len(tokens), min(self.model.context_length, self.cache.capacity)
        if needed > room:
            raise ContextError(
                f"The text needs {needed} positions, but the context holds {room}; shorten it or allow a longer "
                "context."
            )
        try:
            hidden = self._hidden(tokens, len(self.cache))
            self.cache.extend(tokens)
        except BaseException:
            self.cache.restore()
            raise
        return hidden

    def logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [n, vocabulary] on the host, which later calls may overwrite.

        Raises NumericsError, which names the first layer at fault, where one is NaN or infinite.
        """
        logits: npt.NDArray[np.float32] = self.ops.host(self.model.logits(self.ops, hidden))
        if not np.isfinite(logits).all():
            raise not_finite(self.model, self.ops, self.cache, hidden)
        return logits

    def next_logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [vocabulary] for the token after its last row."""
        row: npt.NDArray[np.float32] = self.logits(self.ops.last(hidden, 1))[0]
        return row
