"""What a model can be asked for, by its own template: reasoning, how much of it, tools."""

from __future__ import annotations

import pytest

from engine.errors import SettingsError, UnsupportedModelError
from engine.text import Chat, ChatTemplate, Tokenizer
from engine.types import Message, Settings, Tool
from tests.engine.text.call_templates import DEEPSEEK, HARMONY
from tests.engine.text.call_templates import QWEN as CALLS
from tests.engine.text.templates import CHATML, QWEN
from tests.engine.text.vocabularies import byte_level

ASK = (Message("user", "Hi"),)
THINKS = CHATML + "<think>\n</think>"
ALWAYS = CHATML + "{{ '</think>' if false }}{% if add_generation_prompt %}<think>\n{% endif %}"
DEEPSEEK_31 = CHATML + "{{ '<think>' if thinking else '</think>' }}"
EFFORT = CHATML + "{{ reasoning_effort }}"
TOOLS = (Tool("mill", "Grinds"),)


def chat(source: str) -> Chat:
    metadata = byte_level("smollm") | {"tokenizer.chat_template": source}
    tokenizer = Tokenizer.from_metadata(metadata)
    return Chat(ChatTemplate.from_metadata(metadata, tokenizer), tokenizer)


def prompt(source: str, settings: Settings, tools: tuple[Tool, ...] = ()) -> str:
    """What the model reads, which is what is rendered."""
    made = chat(source)
    ids = made.encode(ASK, settings, tools)
    metadata = byte_level("smollm") | {"tokenizer.chat_template": source}
    text = Tokenizer.from_metadata(metadata).decode(ids, skip_special=False)
    assert text == made.render(ASK, settings, tools)
    return text


def test_thinking_is_switched_where_the_template_can() -> None:
    nothing = "<think>\n\n</think>\n\n"
    assert prompt(QWEN, Settings(thinking=False)).endswith(nothing)
    assert prompt(QWEN, Settings(thinking=True)) == prompt(QWEN, Settings())
    assert not prompt(QWEN, Settings()).endswith(nothing)
    assert prompt(DEEPSEEK_31, Settings(thinking=True)).endswith("<think>")
    assert prompt(DEEPSEEK_31, Settings(thinking=False)).endswith("</think>")


def test_effort_is_told_where_the_template_can() -> None:
    assert prompt(EFFORT, Settings(effort="high")).endswith("high")
    for source in (CHATML, QWEN):
        with pytest.raises(SettingsError, match=r"cannot tell it how much to reason: leave the effort"):
            prompt(source, Settings(effort="low"))
    with pytest.raises(SettingsError, match="or switch thinking on or off"):
        prompt(QWEN, Settings(effort="low"))


def test_a_model_that_does_not_reason_is_asked_not_to_but_never_to() -> None:
    assert prompt(CHATML, Settings(thinking=False)) == prompt(CHATML, Settings())
    with pytest.raises(SettingsError, match="does not reason before it answers"):
        prompt(CHATML, Settings(thinking=True))


def test_a_model_that_always_reasons_cannot_be_asked_not_to() -> None:
    for source in (ALWAYS, HARMONY):
        assert prompt(source, Settings(thinking=True)) == prompt(source, Settings())
        with pytest.raises(SettingsError, match=r"always reasons, and its chat template has no switch"):
            prompt(source, Settings(thinking=False))
    with pytest.raises(SettingsError, match=r"a low effort keeps it short"):
        prompt(HARMONY, Settings(thinking=False))
    # It may reason: nothing in the prompt makes it.
    assert prompt(THINKS, Settings(thinking=False)) == prompt(THINKS, Settings())


def test_tools_are_told_and_the_reply_is_read_in_the_form_of_the_template() -> None:
    assert '"name": "mill"' in prompt(CALLS, Settings(), TOOLS)
    assert "mill" not in prompt(CALLS, Settings())
    form = chat(CALLS).reply_form(TOOLS)
    assert form.tools is not None and form.tools.name == "qwen"
    assert {"<tool_call>", "</tool_call>"} <= {*form.markers}
    assert chat(CALLS).reply_form(()).tools is None


def test_harmony_reads_calls_by_its_channels() -> None:
    form = chat(HARMONY).reply_form(TOOLS)
    assert form.tools is None and "<|call|>" in form.markers


def test_tools_stand_in_the_system_message_where_a_template_knows_calls_alone() -> None:
    made = chat(DEEPSEEK)
    system, user = "[system]", "[/][user]Hi[/]"
    first = made.render(ASK, Settings(), TOOLS)
    assert first.startswith(system) and user in first and '{"name": "mill", "description": "Grinds"' in first
    second = made.render([Message("system", "Be brief."), *ASK], Settings(), TOOLS)
    assert second == first.replace(system, f"{system}Be brief.\n\n")


def test_tools_are_refused_where_the_model_cannot_call_them() -> None:
    with pytest.raises(SettingsError, match="knows no tools: leave them away"):
        chat(CHATML).reply_form(TOOLS)
    with pytest.raises(
        UnsupportedModelError, match=r"in a form that is not known here\. .*: harmony, gemma4, .*llama3"
    ):
        chat(CHATML + "{{ tools }}").reply_form(TOOLS)
