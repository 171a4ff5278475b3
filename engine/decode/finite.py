"""What to say when a model's logits are not finite numbers."""

from __future__ import annotations

from engine.decode.cache import KVCache
from engine.errors import NumericsError
from engine.kernels.ops import Ops, Tensor
from engine.kernels.watch import Watch
from engine.models.model import Model

CHUNK = 64
"""Positions computed together. It does not depend on how the text was read, so that the message does not either."""


def not_finite(model: Model, ops: Ops, cache: KVCache, hidden: Tensor) -> NumericsError:
    """The error that names the first place where NaN or infinity appears, `hidden` [n, hidden_size] having given it.

    All cached tokens are computed again from position 0, because what a position caches spoils every later one. The
    same rows are written to the cache once more, which leaves it as it was, save that positions are dropped that
    recurrent states have lost.
    """
    tokens = cache.tokens
    try:
        for start in range(0, len(tokens), CHUNK):
            watch = Watch(ops, cache.layers, start)
            again = model.hidden(watch, tokens[start : start + CHUNK], start, cache.layers)
            model.logits(watch, watch.last(again, 1))
        model.logits(Watch(ops, cache.layers, None), hidden)
    except NumericsError as error:
        return error
    finally:
        cache.restore()
    return NumericsError(
        "The model computed logits that are not finite numbers, but not when it computed them again: this machine's "
        "memory or processor makes errors. Start again, and test the machine."
    )
