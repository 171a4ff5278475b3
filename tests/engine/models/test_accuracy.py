"""The starter model's logits over English text against Transformers in float32 over the same decoded weights."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import compare, engine_logits, prose_tokens, transformers_logits
from engine.formats.gguf import read
from engine.formats.index import TensorIndex
from tests.engine.devices import DEVICES

BOUNDS = {("reference", "f32"): 1e-5, ("native", "f32"): 3e-4, ("native", "f16"): 1e-3}
"""About twice what `bench/accuracy.py` measures, as a share of the largest logit."""


@dataclass(frozen=True)
class Text:
    index: TensorIndex
    tokens: list[int]
    truth: np.ndarray


@pytest.fixture(scope="module")
def text(request: pytest.FixtureRequest, starter: Path) -> Text:
    """As many tokens as the test asks for, and what Transformers makes of them."""
    index = read(starter)
    tokens = prose_tokens(index, request.param)
    return Text(index, tokens, transformers_logits(index, tokens))


def check(text: Text, device: str, kv: str) -> None:
    with closing(DEVICES[device]()) as ops:
        result = compare(engine_logits(text.index, ops, text.tokens, kv=kv), text.truth)
    assert result["max_error"] <= BOUNDS[device, kv]
    assert result["decided"] >= 0.9 * result["positions"]
    assert result["decided_agree"] == result["decided"]


@pytest.mark.parametrize("text", [128], indirect=True)
@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_the_starter_agrees_with_transformers(text: Text, kv: str) -> None:
    check(text, "native", kv)


@pytest.mark.slow
@pytest.mark.parametrize("text", [512], indirect=True)
@pytest.mark.parametrize(("device", "kv"), BOUNDS)
def test_the_starter_agrees_with_transformers_over_a_long_text(text: Text, device: str, kv: str) -> None:
    check(text, device, kv)
