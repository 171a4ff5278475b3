"""A reply's reasoning comes as events of its own, by markers that are special tokens and are never shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from engine.cancel import Cancel
from engine.decode.forward import Forward
from engine.decode.generate import generate
from engine.decode.prompt import Prompt
from engine.formats.index import TensorIndex
from engine.kernels.ops import Tensor
from engine.text import ReplyForm, Tokenizer
from engine.types import Finished, PrefillProgress, Reasoning, Settings, Text
from tests.engine.text.pieces import joined

GREEDY = Settings(temperature=0)
TYPES = "tokenizer.ggml.token_type"
TOKENS = "tokenizer.ggml.tokens"


class Writes(Forward):
    """A model that writes a given reply, whatever it computes."""

    def __init__(self, forward: Forward, reply: Sequence[int]) -> None:
        super().__init__(forward.model, forward.ops, forward.cache)
        self._reply = iter(reply)

    def next_logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        logits = np.zeros_like(super().next_logits(hidden))
        logits[next(self._reply)] = 1
        return logits


@pytest.fixture(scope="module")
def thinker(index: TensorIndex) -> Tokenizer:
    """The tiny model's tokenizer, in which two bytes that no text has are the markers."""
    tokens, types = list(index.metadata[TOKENS]), list(index.metadata[TYPES])
    tokens[0xFE:0x100], types[0xFE:0x100] = ["<think>", "</think>"], [3, 3]
    return Tokenizer.from_metadata({**index.metadata, TOKENS: tokens, TYPES: types})


def reply_to(
    prompt: str,
    reply: str,
    make_forward: Callable[..., Forward],
    tokenizer: Tokenizer,
    settings: Settings = GREEDY,
    *,
    continues: bool = False,
    cancel_after: int = -1,
) -> tuple[list[object], Finished]:
    ids = [tokenizer.encode(text, parse_special=True, add_bos=False) for text in (prompt, reply)]
    forward, cancel = Writes(make_forward(), ids[1]), Cancel()
    pieces = []
    form = None if continues else ReplyForm(tokenizer.channels)
    for event in generate(forward, tokenizer, Prompt.of(ids[0]), settings, chunk=8, form=form, cancel=cancel):
        if isinstance(event, Finished):
            return joined(pieces), event
        if not isinstance(event, PrefillProgress):
            pieces.append(event)
        if len(pieces) == cancel_after:
            cancel.set()
    raise AssertionError("no end")


def test_reasoning_and_text_are_told_apart(make_forward: Callable[..., Forward], thinker: Tokenizer) -> None:
    reply = "<think>\nWhy is the é?\n</think>\n\nSo.<|turn|><|end|>"
    said, finished = reply_to("<|turn|>", reply, make_forward, thinker)
    assert said == [Reasoning("Why is the é?"), Text("So.")]
    assert (finished.reason, finished.in_reasoning) == ("stop", False)


def test_the_prompt_may_have_opened_the_reasoning(make_forward: Callable[..., Forward], thinker: Tokenizer) -> None:
    said, finished = reply_to("<|turn|><think>\n", "Why?</think>So.<|end|>", make_forward, thinker)
    assert said == [Reasoning("Why?"), Text("So.")]
    assert not finished.in_reasoning


@pytest.mark.parametrize("reason", ["length", "stop", "cancelled"])
def test_a_reply_that_ends_inside_its_reasoning_says_so(
    make_forward: Callable[..., Forward], thinker: Tokenizer, reason: str
) -> None:
    settings = Settings(temperature=0, max_tokens=6) if reason == "length" else GREEDY
    reply = "<think>Why, why?" + "<|end|>" * (reason == "stop")
    said, finished = reply_to(
        "<|turn|>", reply, make_forward, thinker, settings, cancel_after=5 if reason == "cancelled" else -1
    )
    expected = {"length": "Why, ", "stop": "Why, why?", "cancelled": "Why, w"}[reason]
    assert said == [Reasoning(expected.rstrip() if reason == "length" else expected)]
    assert (finished.reason, finished.in_reasoning) == (reason, True)


def test_raw_text_goes_on_as_it_is(make_forward: Callable[..., Forward], thinker: Tokenizer) -> None:
    said, finished = reply_to("mill", "<think>a</think> b<|end|>", make_forward, thinker, continues=True)
    assert said == [Text("a b")]
    assert not finished.in_reasoning


def test_a_model_without_markers_gives_text_as_it_comes(
    make_forward: Callable[..., Forward], tokenizer: Tokenizer
) -> None:
    assert tokenizer.channels is None
    said, finished = reply_to("<|turn|>", "\n<think>a</think> b<|end|>", make_forward, tokenizer)
    assert said == [Text("\n<think>a</think> b")]
    assert not finished.in_reasoning
