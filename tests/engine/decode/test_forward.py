"""A forward pass over a conversation's cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.decode.forward import Forward
from engine.errors import ContextError
from engine.types import CACHE_KINDS
from tests.engine.kernels.test_native import runnable


def test_tokens_past_the_context_are_refused_and_the_cache_stays(make_forward: Callable[..., Forward]) -> None:
    forward = make_forward(capacity=4)
    forward.advance([1, 2, 3])
    with pytest.raises(ContextError, match=r"needs 5 positions, but the context holds 4; shorten it or allow a longer"):
        forward.advance([4, 5])
    assert forward.cache.tokens == (1, 2, 3)
    forward.advance([4])
    assert len(forward.cache) == 4


@pytest.mark.parametrize(("capacity", "context"), [(4, 8), (8, 4)])
def test_the_smaller_of_the_cache_and_the_model_bounds_a_pass(
    capacity: int, context: int, make_forward: Callable[..., Forward]
) -> None:
    forward = Forward(make_forward(capacity=context).model, make_forward().ops, make_forward(capacity=capacity).cache)
    with pytest.raises(ContextError, match="needs 5 positions, but the context holds 4;"):
        forward.advance([1, 2, 3, 4, 5])
    assert len(forward.cache) == 0


@pytest.mark.parametrize("kv", CACHE_KINDS)
@pytest.mark.parametrize(
    "isa", [pytest.param(isa, marks=pytest.mark.slow if at else ()) for at, isa in enumerate(runnable())]
)
def test_a_batch_of_rows_gives_the_bits_of_single_steps(
    starter_on: Callable[..., Forward], prose: list[int], isa: str, kv: str
) -> None:
    forward = starter_on(isa, 2, kv)

    def computed(tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Hidden states and logits of the next positions, as bits."""
        hidden = forward.advance(tokens)
        return tuple(values.copy().view(np.uint32) for values in (forward.ops.host(hidden), forward.logits(hidden)))

    forward.advance(prose[:1016])
    for base in (1016, 56, 6):
        forward.cache.truncate(base)
        steps = [computed([token]) for token in prose[base : base + 16]]
        for m in (1, 2, 4, 8, 16):
            forward.cache.truncate(base)
            for batch, singles in zip(computed(prose[base : base + m]), zip(*steps[:m], strict=True), strict=True):
                assert np.array_equal(batch, np.concatenate(singles)), f"{m} rows at base {base}"
