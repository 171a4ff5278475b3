"""Reasoning and text, told apart in a reply that comes in any pieces."""

from __future__ import annotations

import random

import pytest

from engine.text.channels import ChannelForm, Harmony, Tags, channel_form
from engine.types import Reasoning, Text, ToolCall
from tests.engine.text.pieces import Piece, read

R, T = Reasoning, Text
ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
HARMONY = "<|end|><|start|>assistant"


def form_of(template: str) -> ChannelForm:
    form = channel_form(template, ())
    assert form is not None
    return form


THINK = form_of("{{ '<think>' }} {{ content.split('</think>') }}")
MISTRAL = form_of("[THINK] [/THINK]")
GEMMA = form_of("<|channel>thought\n<channel|>")
OPENAI = form_of("<|start|>assistant<|channel|>final<|message|>")

EXAMPLES: list[tuple[str, ChannelForm, str, str, list[Piece], bool]] = [
    (
        "opened in the reply",
        THINK,
        ASSISTANT,
        "<think>\nWhy?\n\nSo.\n</think>\n\nYes.\n",
        [R("Why?\n\nSo."), T("Yes.\n")],
        False,
    ),
    ("opened in the prompt", THINK, ASSISTANT + "<think>\n", "Why?\n</think>\n\nYes.", [R("Why?"), T("Yes.")], False),
    (
        "closed in the prompt",
        THINK,
        ASSISTANT + "<think>\n\n</think>\n\n",
        "Yes </think>.",
        [T("Yes </think>.")],
        False,
    ),
    ("nothing thought", THINK, ASSISTANT, "<think>\n\n</think>\n\nYes.", [T("Yes.")], False),
    ("no reasoning at all", THINK, ASSISTANT, " \n Yes <b>.\n", [T(" \n Yes <b>.\n")], False),
    ("talk about the tag", THINK, ASSISTANT, "The <think> tag. </think>", [T("The <think> tag. </think>")], False),
    ("almost a tag", THINK, ASSISTANT, "<thin", [T("<thin")], False),
    ("blanks alone", THINK, ASSISTANT, " \n", [T(" \n")], False),
    (
        "almost closed",
        THINK,
        ASSISTANT,
        "<think>a </thin b </ think></think>c",
        [R("a </thin b </ think>"), T("c")],
        False,
    ),
    ("never closed", THINK, ASSISTANT, "<think>a </thi", [R("a </thi")], True),
    ("never closed, from the prompt", THINK, "<think>\n", "\n hm \n\n", [R("hm")], True),
    ("only reasoning", THINK, "<think>", "a</think>", [R("a")], False),
    ("another tag within", THINK, "<think>", "<think>a</think>b<think>c", [R("<think>a"), T("b<think>c")], False),
    ("Mistral", MISTRAL, "[/INST]", "[THINK]Why?[/THINK]Yes [THINK].", [R("Why?"), T("Yes [THINK].")], False),
    ("Gemma", GEMMA, "<|turn>model\n", "<|channel>thought\nWhy?\n<channel|>Yes.", [R("Why?"), T("Yes.")], False),
    ("Gemma, thinking off", GEMMA, "<|turn>model\n<|channel>thought\n<channel|>", "Yes.", [T("Yes.")], False),
    ("Gemma, opened in the prompt", GEMMA, "<|channel>thought\n", "a<channel|>b", [R("a"), T("b")], False),
    (
        "Gemma, twice",
        GEMMA,
        "<|turn>model\n",
        "<|channel>thought\na<channel|>b <|channel>thought\nc<channel|>d",
        [R("a"), T("b "), R("c"), T("d")],
        False,
    ),
    ("Gemma, never closed", GEMMA, "<|turn>model\n", "<|channel>thought\na <chan", [R("a <chan")], True),
    (
        "harmony",
        OPENAI,
        HARMONY,
        f"<|channel|>analysis<|message|>Why? {HARMONY}<|channel|>final<|message|>Yes.\n<|return|>",
        [R("Why? "), T("Yes.\n")],
        False,
    ),
    (
        "harmony, several messages of a channel",
        OPENAI,
        HARMONY,
        f"<|channel|>analysis<|message|>a{HARMONY}<|channel|>commentary<|message|>b{HARMONY}<|channel|>analysis<|message|>c"
        f"{HARMONY}<|channel|>final<|message|>d",
        [R("a"), T("b"), R("\n\nc"), T("\n\nd")],
        False,
    ),
    ("harmony, no thought", OPENAI, HARMONY, "<|channel|>final<|message|>Yes <|x|> <|.", [T("Yes <|x|> <|.")], False),
    ("harmony, never closed", OPENAI, HARMONY, "<|channel|>analysis<|message|>a <|en", [R("a <|en")], True),
    ("harmony, nothing after", OPENAI, HARMONY, "<|channel|>analysis<|message|>a<|end|>", [R("a")], True),
    (
        "harmony, cut in a header",
        OPENAI,
        HARMONY,
        f"<|channel|>analysis<|message|>a{HARMONY}<|channel|>fin",
        [R("a")],
        True,
    ),
    ("harmony, opened in the prompt", OPENAI, HARMONY + "<|channel|>analysis<|message|>x", "y<|end|>", [R("y")], True),
    ("harmony, final in the prompt", OPENAI, HARMONY + "<|channel|>final<|message|>", "y", [T("y")], False),
    ("harmony, channel in the prompt", OPENAI, HARMONY + "<|channel|>analysis", "<|message|>y", [R("y")], True),
    ("harmony, the form is left", OPENAI, HARMONY, "Yes. <|chan", [T("Yes. <|chan")], False),
    ("harmony, left after the end", OPENAI, HARMONY, "<|channel|>final<|message|>a<|end|>b", [T("a\n\nb")], False),
    ("harmony, left like a header", OPENAI, HARMONY, " to", [T(" to")], False),
    (
        "harmony, a new channel at once",
        OPENAI,
        "",
        "<|channel|>analysis<|message|>a<|channel|>final<|message|>b",
        [R("a"), T("b")],
        False,
    ),
    (
        "harmony, a call",
        OPENAI,
        HARMONY,
        f"<|channel|>analysis<|message|>a{HARMONY}<|channel|>commentary to=functions.mill <|constrain|>json<|message|>"
        '{"n": 1, "s": "é"}<|call|>',
        [R("a"), ToolCall("mill", '{"n": 1, "s": "é"}')],
        False,
    ),
    (
        "harmony, the recipient first, the end token not seen",
        OPENAI,
        HARMONY,
        ' to=functions.mill<|channel|>commentary json<|message|>{"n": 1}',
        [ToolCall("mill", '{"n": 1}')],
        False,
    ),
    (
        "harmony, code",
        OPENAI,
        HARMONY,
        "<|channel|>analysis to=python code<|message|>print(1)\n<|call|>",
        [ToolCall("python", '{"code": "print(1)\\n"}')],
        False,
    ),
    (
        "harmony, no call",
        OPENAI,
        HARMONY,
        "<|channel|>commentary to=functions.mill<|message|>{oh<|call|>",
        [T("{oh")],
        False,
    ),
]


@pytest.mark.parametrize(
    ("form", "prompt", "reply", "expected", "inside"), [row[1:] for row in EXAMPLES], ids=[row[0] for row in EXAMPLES]
)
def test_a_reply_is_split_alike_however_it_is_cut(
    form: ChannelForm, prompt: str, reply: str, expected: list[Piece], inside: bool
) -> None:
    assert read(lambda: form.reader(prompt), reply) == expected
    reader = form.reader(prompt)
    reader.push(reply)
    reader.flush()
    assert reader.in_reasoning == inside


@pytest.mark.parametrize("form", [THINK, GEMMA, OPENAI], ids=["think", "gemma", "harmony"])
def test_any_mixture_of_markers_is_split_alike_however_it_is_cut_and_loses_no_word(form: ChannelForm) -> None:
    draws = random.Random(9)
    markers = [*form.markers, "<think>", "<|channel>thought", " to=f", "analysis", "<|", "<", "\n", " "]
    for _ in range(150):
        words = [f"w{n}." for n in range(4)]
        parts = [part for word in words for part in (*draws.choices(markers, k=draws.randrange(4)), word)]
        come = read(lambda: form.reader("<|start|>assistant"), "".join(parts))
        if not isinstance(form, Harmony):
            said = "".join(piece.text for piece in come if not isinstance(piece, ToolCall))
            assert [word for word in words if word in said] == words


def test_what_is_decided_comes_at_once() -> None:
    reader = THINK.reader("<think>\n")
    assert reader.push("So it is") == [R("So it is")]
    assert reader.push(" <") == []
    assert reader.push("b> ") == [R(" <b>")]
    assert reader.in_reasoning
    assert reader.push("</think>\n") == []
    assert not reader.in_reasoning
    assert reader.push("Yes") == [T("Yes")]


def test_a_model_without_markers_has_no_form() -> None:
    assert channel_form("{{ '<|im_start|>' }}<think>", {"<|im_start|>"}) is None


def test_the_vocabulary_counts_where_the_template_says_nothing() -> None:
    form = channel_form("", {"<think>", "</think>"})
    assert isinstance(form, Tags) and form.open == "<think>"
