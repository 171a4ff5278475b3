"""Chat templates, judged by what Transformers renders from the same source."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from transformers.utils import chat_template_utils

from engine.errors import SettingsError, UnsupportedModelError
from engine.formats import open_index
from engine.text import ChatTemplate, Tokenizer
from engine.types import Message, Tool
from tests.engine.text.templates import CHATML, GEMMA, LLAMA3, MISTRAL, ODDS, QWEN
from tests.engine.text.vocabularies import byte_level

CONVERSATIONS = (
    (Message("user", "Hello <b>&amp; \"quotes\" 'single'</b> 世界 🙂"),),
    (Message("user", "  spaces \n"), Message("assistant", " Yes.\n"), Message("user", "And {{ 7 * 7 }} {% raw %}?")),
    (Message("system", " Be terse.\n"), Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "Bye")),
    (Message("user", "x"), Message("assistant", "<think>\nhm\n</think>\n\nreply")),
    (Message("user", ""),),
)
TOOLS = [Tool("mill", "Größe <&>", '{"n": 1}')]
TOOLS_AS_JSON = [
    {"type": "function", "function": {"name": "mill", "description": "Größe <&>", "parameters": {"n": 1}}},
]


def transformers_renders(source: str, messages: tuple[Message, ...], **options: object) -> str:
    turns: list[dict[str, object]] = [{"role": message.role, "content": message.content} for message in messages]
    return transformers_renders_turns(source, turns, **options)


def transformers_renders_turns(source: str, turns: list[dict[str, object]], **options: object) -> str:
    rendered, _ = chat_template_utils.render_jinja_template(
        conversations=[turns], chat_template=source, bos_token="<s>", eos_token="</s>", **options
    )
    return rendered[0]


def template(source: str, **options: object) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>", **options)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("source", [CHATML, LLAMA3, QWEN, MISTRAL, ODDS])
def test_a_conversation_is_rendered_as_transformers_renders_it(
    source: str, messages: tuple[Message, ...], add_generation_prompt: bool
) -> None:
    for mine, theirs in (
        ({}, {}),
        ({"tools": TOOLS}, {"tools": TOOLS_AS_JSON}),
        ({"thinking": False}, {"enable_thinking": False}),
        ({"thinking": True}, {"enable_thinking": True}),
    ):
        rendered = template(source).render(messages, add_generation_prompt=add_generation_prompt, **mine)
        assert rendered == transformers_renders(source, messages, add_generation_prompt=add_generation_prompt, **theirs)


def test_what_the_template_refuses_is_said_in_its_own_words() -> None:
    assert template(GEMMA).render(CONVERSATIONS[1]) == transformers_renders(
        GEMMA, CONVERSATIONS[1], add_generation_prompt=True
    )
    with pytest.raises(SettingsError, match=r"refused the conversation: No system messages, please\.$"):
        template(GEMMA).render(CONVERSATIONS[2])
    with pytest.raises(SettingsError, match=r"refused the conversation: Roles must alternate"):
        template(GEMMA).render([Message("user", "a"), Message("user", "b")])


def test_a_refusal_is_not_quoted_without_end() -> None:
    with pytest.raises(SettingsError) as caught:
        template("{{ raise_exception('no ' * 9999) }}").render(CONVERSATIONS[0])
    assert len(str(caught.value)) < 400


def test_the_date_is_that_of_the_clock() -> None:
    clock = template("{{ strftime_now('%d %B %Y') }}", now=lambda: datetime(2024, 7, 26))
    assert clock.render(CONVERSATIONS[0]) == "26 July 2024"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for %}", r"cannot be read \(Expected"),
        ("{{ 'a' | nofilter }}", r"cannot be read \(No filter named 'nofilter'"),
        ("{% for x in y %}", r"cannot be read \("),
        ("{{ messages[0].a.b }}", r"failed \('dict object' has no attribute 'a'\)"),
        ("{{ 1 / 0 }}", r"failed \(division by zero\)"),
        ("{% include 'other' %}", r"failed \(no loader"),
    ],
)
def test_a_broken_template_is_refused_with_a_sentence(source: str, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words + ".*raw text"):
        template(source).render(CONVERSATIONS[0])


@pytest.mark.parametrize("metadata", [{}, {"tokenizer.chat_template": " \n"}, {"tokenizer.chat_template": 5}])
def test_a_file_without_a_template_is_refused_and_raw_text_is_suggested(metadata: dict[str, object]) -> None:
    tokenizer = Tokenizer.from_metadata(byte_level("smollm"))
    with pytest.raises(UnsupportedModelError, match=r"has no chat template.*raw text"):
        ChatTemplate.from_metadata(metadata, tokenizer)


def test_a_file_gives_its_template_the_texts_of_its_tokens() -> None:
    metadata = byte_level("smollm") | {"tokenizer.chat_template": "{{ bos_token }} {{ eos_token }}"}
    made = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    assert made.render(CONVERSATIONS[0]) == "<|bos|> <|im_end|>"
    del metadata["tokenizer.ggml.bos_token_id"], metadata["tokenizer.ggml.eos_token_id"]
    made = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    assert made.render(CONVERSATIONS[0]) == " "


def test_the_starters_own_template_is_rendered_as_transformers_renders_it(starter: Path) -> None:
    metadata = open_index(starter).metadata
    made = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    for messages in CONVERSATIONS:
        expected = transformers_renders(made.source, messages, add_generation_prompt=True)
        assert made.render(messages) == expected


SMOLVLM = (
    "{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}{% endif %}{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def test_a_template_that_reads_only_parts_is_given_parts() -> None:
    messages = (Message("user", "<b>Hello</b>"), Message("assistant", "Yes?"), Message("user", ""))
    turns = [{"role": turn.role, "content": [{"type": "text", "text": turn.content}]} for turn in messages]
    expected = transformers_renders_turns(SMOLVLM, turns, add_generation_prompt=True)
    assert "Hello" in expected
    assert ChatTemplate(SMOLVLM, bos="<s>", eos="</s>").render(messages) == expected
