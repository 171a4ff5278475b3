"""A reply's calls of tools come as events of their own, by markers that are special tokens and are never shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.decode.forward import Forward
from engine.decode.generate import generate
from engine.decode.prompt import Prompt
from engine.formats.index import TensorIndex
from engine.text import ReplyForm, Tokenizer
from engine.text.tools import parameter_types, tool_form
from engine.types import Finished, PrefillProgress, Reasoning, Settings, Text, ToolCall
from tests.engine.decode.test_reasoning import TOKENS, TYPES, Writes
from tests.engine.text.pieces import joined

SCHEMA = {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
QWEN_35 = "<tool_call><function=mill><parameter=s>5</parameter><parameter=n>5</parameter></function></tool_call>"


@pytest.fixture(scope="module")
def caller(index: TensorIndex) -> Tokenizer:
    """The tiny model's tokenizer, in which four bytes that no text has are the markers."""
    tokens, types = list(index.metadata[TOKENS]), list(index.metadata[TYPES])
    tokens[0xFC:0x100], types[0xFC:0x100] = ["<think>", "</think>", "<tool_call>", "</tool_call>"], [3] * 4
    return Tokenizer.from_metadata({**index.metadata, TOKENS: tokens, TYPES: types})


def test_calls_are_told_apart_from_text_and_reasoning(make_forward: Callable[..., Forward], caller: Tokenizer) -> None:
    assert caller.calls is tool_form("<tool_call>") is not None
    types = parameter_types([{"name": "mill", "parameters": SCHEMA}])
    said, finished = reply(make_forward, caller, f"<think>{QWEN_35}</think>So: {QWEN_35}\n<|end|>", types)
    assert said == [Reasoning(QWEN_35), Text("So: "), ToolCall("mill", '{"s": "5", "n": 5}')]
    assert (finished.reason, finished.in_reasoning) == ("stop", False)


def test_a_call_that_is_cut_off_is_shown_as_it_was_written(
    make_forward: Callable[..., Forward], caller: Tokenizer
) -> None:
    said, finished = reply(make_forward, caller, QWEN_35, {}, Settings(temperature=0, max_tokens=20))
    ids = caller.encode(QWEN_35, parse_special=True, add_bos=False)
    assert said == [Text(caller.decode(ids[:20], skip_special=False))]
    assert finished.reason == "length"


def reply(
    make_forward: Callable[..., Forward],
    tokenizer: Tokenizer,
    text: str,
    types: dict[str, dict[str, object]],
    settings: Settings = Settings(temperature=0),  # noqa: B008
) -> tuple[list[object], Finished]:
    form = ReplyForm(tokenizer.channels, tokenizer.calls, types)
    prompt, ids = (tokenizer.encode(part, parse_special=True, add_bos=False) for part in ("<|turn|>", text))
    forward = Writes(make_forward(capacity=256), ids)
    events = list(generate(forward, tokenizer, Prompt.of(prompt), settings, chunk=8, form=form))
    assert isinstance(events[-1], Finished)
    return joined([event for event in events[:-1] if not isinstance(event, PrefillProgress)]), events[-1]
