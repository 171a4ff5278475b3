"""Tools, calls and results as templates take them: judged by what Transformers renders, and by reading it back."""

from __future__ import annotations

import json

import pytest

from engine.errors import SettingsError
from engine.text import ChatTemplate, ReplyReader
from engine.text.channels import channel_form
from engine.text.conversation import descriptions
from engine.text.tools import ToolReader, parameter_types, tool_form
from engine.types import Message, Reasoning, Text, Tool, ToolCall
from tests.engine.text.call_templates import FAMILIES, HARMONY, QWEN
from tests.engine.text.test_template import transformers_renders_turns

SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = (Tool("weather", "Größe <&>", json.dumps(SCHEMA)), Tool("clock"))
TOOLS_AS_JSON = [
    {"type": "function", "function": {"name": "weather", "description": "Größe <&>", "parameters": SCHEMA}},
    {
        "type": "function",
        "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]
GIVEN = {"place": 'Zürich "am See"\n', "days": 3}
CALLS = (ToolCall("weather", json.dumps(GIVEN, ensure_ascii=False)), ToolCall("clock", "{}"))
MESSAGES = (
    Message("user", "Will it rain?"),
    Message("assistant", "", calls=CALLS),
    Message("tool", "No."),
    Message("tool", "Noon."),
    Message("assistant", "No, it will not."),
    Message("user", "And now?"),
)
AS_TEXT = "DeepSeek V3"
"""Its template wants arguments as text, and no content at all beside calls."""


def turns_of(family: str) -> list[dict[str, object]]:
    named = [("call00000", "weather", GIVEN), ("call00001", "clock", {})]
    calls = [
        {
            "type": "function",
            "id": number,
            "function": {
                "name": name,
                "arguments": json.dumps(given, ensure_ascii=False) if family == AS_TEXT else given,
            },
        }
        for number, name, given in named
    ]
    return [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": None if family == AS_TEXT else "", "tool_calls": calls},
        {"role": "tool", "content": "No.", "name": "weather", "tool_call_id": "call00000"},
        {"role": "tool", "content": "Noon.", "name": "clock", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "No, it will not."},
        {"role": "user", "content": "And now?"},
    ]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>")


@pytest.mark.parametrize("family", FAMILIES)
def test_tools_calls_and_results_are_rendered_as_transformers_renders_them(family: str) -> None:
    expected = transformers_renders_turns(
        FAMILIES[family], turns_of(family), tools=TOOLS_AS_JSON, add_generation_prompt=True
    )
    assert template(FAMILIES[family]).render(MESSAGES, tools=TOOLS) == expected
    assert "No." in expected and "Noon." in expected and "am See" in expected


@pytest.mark.parametrize("family", FAMILIES)
def test_the_calls_that_a_template_writes_are_read_as_they_were(family: str) -> None:
    source = FAMILIES[family]
    before = template(source).render(MESSAGES[:1], tools=TOOLS, add_generation_prompt=True)
    written = template(source).render(MESSAGES[:2], tools=TOOLS, add_generation_prompt=False)
    assert written.startswith(before)
    channels, calls = channel_form(source, ()), tool_form(source)
    types = parameter_types(TOOLS_AS_JSON)
    reader = ReplyReader(channels and channels.reader(before), calls and ToolReader(calls, types))
    come = [*reader.push(written[len(before) :].removesuffix("[/]")), *reader.flush()]
    found = [piece for piece in come if isinstance(piece, ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in found] == [("weather", GIVEN), ("clock", {})]
    assert not "".join(piece.text for piece in come if isinstance(piece, (Text, Reasoning))).strip()


def test_reasoning_before_a_call_reaches_templates_that_tell_it() -> None:
    told = (MESSAGES[0], Message("assistant", "", calls=CALLS[:1], reasoning="Clouds?"), Message("tool", "No."))
    assert "analysis<|message|>Clouds?<|end|>" in template(HARMONY).render(told)
    assert "Clouds?" not in template(HARMONY).render(
        (told[0], Message("assistant", "So", calls=CALLS[:1], reasoning="Clouds?"))
    )
    source = "{% for message in messages %}{{ message.reasoning_content }}{% endfor %}"
    assert template(source).render(told) == "Clouds?"


def test_what_is_no_sound_call_or_tool_is_refused() -> None:
    call = Message("assistant", "", calls=CALLS[:1])
    rows: list[tuple[list[Message], list[Tool], str]] = [
        ([Message("user", "a"), Message("tool", "b")], [], "must follow the call"),
        ([call, Message("tool", "b"), Message("tool", "c")], [], "one result for each call"),
        ([call, Message("user", "b"), Message("tool", "c")], [], "must follow the call"),
        ([Message("user", "a", calls=CALLS)], [], "Only an assistant's message"),
        (
            [Message("assistant", "", calls=(ToolCall("mill", "{"),))],
            [],
            "The arguments of 'mill' must be a JSON object",
        ),
        ([Message("assistant", "", calls=(ToolCall("mill", "[]"),))], [], "must be a JSON object, not '\\[\\]'"),
        ([], [Tool(" ")], "must have a name"),
        ([], [Tool("a"), Tool("a")], "Two tools have the name 'a'"),
        ([], [Tool("a", parameters="3")], "The parameters of 'a' must be a JSON object, not '3'"),
        ([], [Tool("a", parameters='{"a":' * 90 + "1" + "}" * 90)], "nested more than 64 deep"),
        ([], [Tool("a", parameters='{"a":' * 99_999)], "must be a JSON object, but cannot be read"),
    ]
    for messages, tools, words in rows:
        with pytest.raises(SettingsError, match=words):
            template(QWEN).render(messages, tools=tools)


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    assert descriptions(TOOLS) == TOOLS_AS_JSON
