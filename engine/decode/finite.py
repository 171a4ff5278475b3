"""What to say when a model's logits are not finite numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import NumericsError
from engine.kernels.ops import Tensor
from engine.kernels.watch import Watch

if TYPE_CHECKING:
    from engine.decode.forward import Forward

CHUNK = 64
"""Positions computed together. It does not depend on how the text was read, so that the message does not either."""


def not_finite(forward: Forward, hidden: Tensor) -> NumericsError:
    """The error that names the first place where NaN or infinity appears, `hidden` [n, hidden_size] having given it.

    All cached tokens are computed again from position 0, because what a position caches spoils every later one. The
    same rows are written to the cache once more, which leaves it as it was, save that positions are dropped that
    recurrent states have lost.
    """
    model, cached, layers = forward.model, forward.cached, forward.cache.layers
    start = 0
    try:
        while tokens := cached.piece(start, CHUNK):
            watch = Watch(forward.ops, layers, start)
            again = forward.run(watch, tokens, start)
            model.logits(watch, watch.last(again, 1))
            start += len(tokens)
        model.logits(Watch(forward.ops, layers, None), hidden)
    except NumericsError as error:
        return error
    finally:
        forward.cache.restore()
    return NumericsError(
        "The model computed logits that are not finite numbers, but not when it computed them again: this machine's "
        "memory or processor makes errors. Start again, and test the machine."
    )
