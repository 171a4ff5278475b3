"""A conversation with tools and switches of reasoning, from the engine's face down to a model that really runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine import (
    Budgets,
    ContextError,
    Engine,
    Event,
    Finished,
    Message,
    Reasoning,
    Settings,
    SettingsError,
    Text,
    Tool,
    ToolCall,
    UnsupportedModelError,
)
from tests.engine.text.pieces import joined
from tests.scripted_chat import write_scripted_chat
from tests.tiny_chat import TEMPLATE

TOOLS = (Tool("mill", "Grinds grain", '{"type": "object", "properties": {"sacks": {"type": "integer"}}}'),)
GREEDY = Settings(temperature=0)
ASK = (Message("user", "Grind!"),)
CALL = '{"name": "mill", "arguments": {"sacks": 3}}'
TOLD = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ reasoning_effort }}"
    "{% for message in messages %}<|turn|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reply = ["<think>", "So I ", f"call {CALL}", "</think>", "\n\nLet me see.", "<tool_call>", CALL, "</tool_call>"]
    path = tmp_path_factory.mktemp("scripted") / "calls.gguf"
    markers = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    return write_scripted_chat(path, reply, template=TOLD, special=markers)


def said(events: Sequence[Event]) -> list[Event]:
    return joined([event for event in events if isinstance(event, (Text, Reasoning, ToolCall))])


def prompt_tokens(events: Sequence[Event]) -> int:
    assert isinstance(events[-1], Finished)
    return events[-1].usage.prompt_tokens


def test_a_call_and_its_result_make_a_round_trip(model: Path) -> None:
    with Engine.load(model) as engine:
        first = list(engine.chat(ASK, GREEDY, tools=TOOLS))
        call = ToolCall("mill", '{"sacks": 3}')
        assert said(first) == [Reasoning(f"So I call {CALL}"), Text("Let me see."), call]
        turns = [*ASK, Message("assistant", "Let me see.", calls=(call,)), Message("tool", "Ground.")]
        second = list(engine.chat(turns, GREEDY, tools=TOOLS))
        assert isinstance(second[-1], Finished)
        assert second[-1].usage.cached_tokens >= prompt_tokens(first)
        more = len("Let me see.<c>|\n|tool\nGround.|\n|assistant\n")  # the call and its markers are a token each
        assert prompt_tokens(second) == prompt_tokens(first) + more


def test_without_tools_a_call_is_text(model: Path) -> None:
    with Engine.load(model) as engine:
        assert said(list(engine.chat(ASK, GREEDY))) == [
            Reasoning(f"So I call {CALL}"),
            Text(f"Let me see.{CALL}"),
        ]


def test_settings_that_the_model_cannot_follow_are_refused_by_the_call(model: Path, tmp_path: Path) -> None:
    with Engine.load(model) as engine:
        plain = prompt_tokens(list(engine.chat(ASK, GREEDY)))
        assert prompt_tokens(list(engine.chat(ASK, Settings(temperature=0, effort="high")))) == plain + len("high")
        with pytest.raises(SettingsError, match="effort must be low, medium or high, not “huge”"):
            engine.chat(ASK, Settings(effort="huge"))  # type: ignore[arg-type]
        with pytest.raises(SettingsError, match="Raw text has no switches"):
            engine.generate("a", Settings(thinking=True))
    plain_model = write_scripted_chat(tmp_path / "plain.gguf", ["Yes."], template=TEMPLATE)
    with Engine.load(plain_model) as engine:
        for settings in (Settings(thinking=True), Settings(effort="low")):
            with pytest.raises(SettingsError):
                engine.chat(ASK, settings)
        with pytest.raises(SettingsError, match="knows no tools"):
            engine.chat(ASK, tools=TOOLS)
        assert said(list(engine.chat(ASK, Settings(temperature=0, thinking=False)))) == [Text("Yes.")]


def test_calls_of_an_unknown_form_are_refused(tmp_path: Path) -> None:
    path = write_scripted_chat(tmp_path / "other.gguf", ["Yes."], template="{{ tools }}" + TEMPLATE)
    with Engine.load(path) as engine, pytest.raises(UnsupportedModelError, match="in a form that is not known here"):
        engine.chat(ASK, tools=TOOLS)


def test_descriptions_of_tools_count_against_the_context(model: Path) -> None:
    long = (Tool("mill", "x" * 10_000),)
    with (
        Engine.load(model, Budgets(context=64)) as engine,
        pytest.raises(ContextError, match=r"has 10\d\d\d characters, but the context holds 64"),
    ):
        engine.chat(ASK, GREEDY, tools=long)


def test_a_reply_that_ends_inside_its_reasoning_says_so(model: Path) -> None:
    with Engine.load(model) as engine:
        events = list(engine.chat(ASK, Settings(temperature=0, max_tokens=2)))
    assert said(events) == [Reasoning("So I")]
    assert isinstance(events[-1], Finished) and events[-1].in_reasoning
