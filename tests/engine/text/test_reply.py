"""Channels and calls together: calls are looked for in what is said, not in what is thought."""

from __future__ import annotations

from engine.text import ReplyReader
from engine.text.channels import channel_form
from engine.text.tools import ToolReader, tool_form
from engine.types import Reasoning, Text, ToolCall
from tests.engine.text.pieces import read

CALL = '<tool_call>{"name": "mill", "arguments": {"n": 1}}</tool_call>'


def test_a_call_in_the_reasoning_is_thought_and_one_in_the_text_is_made() -> None:
    channels, tools = channel_form("<think></think>", ()), tool_form("<tool_call>")
    assert channels is not None and tools is not None
    come = read(
        lambda: ReplyReader(channels.reader("<think>\n"), ToolReader(tools)),
        f"I could say {CALL}.\n</think>\n\nLet me see. {CALL}\n",
    )
    assert come == [
        Reasoning(f"I could say {CALL}."),
        Text("Let me see. "),
        ToolCall("mill", '{"n": 1}'),
    ]


def test_without_channels_and_tools_everything_is_text() -> None:
    text = f"<think> {CALL} </thi"
    assert read(lambda: ReplyReader(None), text) == [Text(text)]
    assert ReplyReader(None).push("") == []


def test_what_channels_hold_back_reaches_the_tools() -> None:
    channels, tools = channel_form("<think></think>", ()), tool_form("<tool_call>")
    assert channels is not None and tools is not None
    assert read(lambda: ReplyReader(channels.reader(""), ToolReader(tools)), "<t") == [Text("<t")]
    assert read(lambda: ReplyReader(channels.reader(""), ToolReader(tools)), CALL) == [ToolCall("mill", '{"n": 1}')]
