"""Calls of tools, found in a reply that comes in any pieces. The judge writes calls as the chat templates do."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest

from engine.text.tools import ToolForm, ToolReader, parameter_types, tool_form
from engine.types import Text, ToolCall
from tests.engine.text.pieces import Piece, read

T = Text
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def form_of(template: str) -> ToolForm:
    form = tool_form(template)
    assert form is not None
    return form


QWEN = form_of("<tool_call>")
LLAMA = form_of("<|python_tag|>")
GEMMA = form_of("<|tool_call>")
FUNCTION_GEMMA = form_of("<start_function_call>")
DEEPSEEK = form_of(BEGIN)
DSML = form_of("{{ '<' ~ '｜DSML｜' ~ 'function_calls>' }}")
DSML_V4 = form_of("{{ '<' ~ '｜DSML｜' ~ 'tool_calls>' }}")
MISTRAL = form_of("[TOOL_CALLS]")
INVOKE, PARAMETER = '<｜DSML｜invoke name="', '<｜DSML｜parameter name="'


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


EXAMPLES: list[tuple[str, ToolForm, str, list[Piece]]] = [
    (
        "Qwen",
        QWEN,
        'Let me see.\n<tool_call>\n{"name": "mill", "arguments": {"n": 1, "s": "é\\n"}}\n</tool_call>',
        [T("Let me see.\n"), call("mill", n=1, s="é\n")],
    ),
    (
        "Qwen, two and a text",
        QWEN,
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b"}</tool_call>\n\nDone <b>',
        [call("a"), call("b"), T("Done <b>")],
    ),
    (
        "Qwen, the marker in an argument",
        QWEN,
        '<tool_call>{"name": "a", "arguments": {"s": "\\"</tool_call>\\\\"}}</tool_call>',
        [call("a", s='"</tool_call>\\')],
    ),
    ("Qwen, not closed", QWEN, '<tool_call>\n{"name": "a", "arguments": {"n": 1}}', [call("a", n=1)]),
    ("Qwen, cut off", QWEN, 'x <tool_call>\n{"name": "a", "argu', [T('x <tool_call>\n{"name": "a", "argu')]),
    ("Qwen, no call", QWEN, "<tool_call> is a tag </tool_call>!", [T("<tool_call> is a tag </tool_call>!")]),
    ("Qwen, no name", QWEN, '<tool_call>{"a": 1}</tool_call>', [T('<tool_call>{"a": 1}</tool_call>')]),
    ("Qwen, a list", QWEN, "<tool_call>[1]</tool_call>", [T("<tool_call>[1]</tool_call>")]),
    (
        "Qwen 3.5",
        QWEN,
        "<tool_call>\n<function=mill>\n<parameter=n>\n5\n</parameter>\n<parameter=s>\na\n b\n</parameter>\n"
        '<parameter=l>\n[1, "x"]\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=id>\n007\n</parameter>\n'
        "</function>\n</tool_call>",
        [call("mill", n=5, s="a\n b", l=[1, "x"], b=True, id="007")],
    ),
    ("Qwen 3.5, nothing given", QWEN, "<tool_call>\n<function=f>\n</function>\n</tool_call>", [call("f")]),
    (
        "Qwen 3.5, a parameter not closed",
        QWEN,
        "<tool_call><function=f><parameter=a>1</function></tool_call>",
        [T("<tool_call><function=f><parameter=a>1</function></tool_call>")],
    ),
    (
        "Llama",
        LLAMA,
        '<|python_tag|>{"name": "mill", "parameters": {"n": "1"}}; {"name": "b", "parameters": {}}',
        [call("mill", n="1"), call("b")],
    ),
    ("Llama, JSON alone", LLAMA, '\n{"name": "mill", "parameters": {"n": 1}}', [call("mill", n=1)]),
    (
        "Llama, JSON alone, with its type",
        LLAMA,
        '{ "type": "function",\n "function": {"name": "mill", "parameters": {"n": 1}}}',
        [call("mill", n=1)],
    ),
    ("Llama, the function's name", LLAMA, '{"type": "function", "function": "f", "parameters": {}}', [call("f")]),
    ("Llama, other JSON", LLAMA, ' {"names": 1}', [T(' {"names": 1}')]),
    ("Llama, JSON cut off", LLAMA, '{"name": "a", ', [T('{"name": "a", ')]),
    ("Llama, an ordinary reply", LLAMA, '\nYes: {"name": "a"} <|py', [T('\nYes: {"name": "a"} <|py')]),
    (
        "Llama, a built-in tool",
        LLAMA,
        'See: <|python_tag|>brave_search.call(query="mills, old", lang="de")',
        [T("See: "), call("brave_search", query="mills, old", lang="de")],
    ),
    ("Llama, code", LLAMA, "<|python_tag|>print(f.call(1))", [call("code_interpreter", code="print(f.call(1))")]),
    ("Llama, blanks alone", LLAMA, " \n", [T(" \n")]),
    (
        "Gemma",
        GEMMA,
        'Let me see.<|tool_call>call:mill{a:<|"|>x, "y"}<|"|>,b:true,c:{d:[1,-2.5,<|"|><|"|>],e:null}}<tool_call|>',
        [T("Let me see."), call("mill", a='x, "y"}', b=True, c={"d": [1, -2.5, ""], "e": None})],
    ),
    (
        "Gemma, two, one with the marker in it",
        GEMMA,
        '<|tool_call>call:a{}<tool_call|><|tool_call>call:b{s:<|"|><tool_call|><|"|>}<tool_call|>',
        [call("a"), call("b", s="<tool_call|>")],
    ),
    (
        "Gemma, without quotes",
        GEMMA,
        "<|tool_call>call:a{s:at 10:30, q: x}<tool_call|>",
        [call("a", s="at 10:30", q="x")],
    ),
    ("Gemma, not closed", GEMMA, "<|tool_call>call:a{n:1}", [call("a", n=1)]),
    ("Gemma, cut off", GEMMA, '<|tool_call>call:a{n:<|"|>1', [T('<|tool_call>call:a{n:<|"|>1')]),
    ("Gemma, no value", GEMMA, "<|tool_call>call:a{n:}<tool_call|>", [T("<|tool_call>call:a{n:}<tool_call|>")]),
    ("Gemma, more", GEMMA, "<|tool_call>call:a{} b<tool_call|>", [T("<|tool_call>call:a{} b<tool_call|>")]),
    (
        "FunctionGemma",
        FUNCTION_GEMMA,
        "<start_function_call>call:mill{a:<escape>x<escape>,n:5}<end_function_call>",
        [call("mill", a="x", n=5)],
    ),
    (
        "DeepSeek V3",
        DEEPSEEK,
        f'Hm.{BEGIN}{CALL}function{SEP}mill\n```json\n{{"s": "```"}}\n```{CALL_END}\n'
        f"{CALL}function{SEP}b\n```json\n{{}}\n```{CALL_END}{END}",
        [T("Hm."), call("mill", s="```"), call("b")],
    ),
    (
        "DeepSeek V3.1",
        DEEPSEEK,
        f'{BEGIN}{CALL}a{SEP}{{"n": 1}}{CALL_END}{CALL}b{SEP}{{}}{CALL_END}',
        [call("a", n=1), call("b")],
    ),
    (
        "DeepSeek V3.2",
        DSML,
        f'Hm.\n\n<｜DSML｜function_calls>\n{INVOKE}mill">\n{PARAMETER}s" string="true">5 </｜DSML｜function_calls>'
        f'</｜DSML｜parameter>\n{PARAMETER}n" string="false">[5]</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        f'{INVOKE}b">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [T("Hm.\n\n"), call("mill", s="5 </｜DSML｜function_calls>", n=[5]), call("b")],
    ),
    (
        "DeepSeek V4",
        DSML_V4,
        f'<｜DSML｜tool_calls>\n{INVOKE}b">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
        [call("b")],
    ),
    (
        "DeepSeek V3.2, no JSON",
        DSML,
        f'<｜DSML｜function_calls>{INVOKE}a">{PARAMETER}n" string="false">x</｜DSML｜parameter></｜DSML｜invoke>',
        [T(f'<｜DSML｜function_calls>{INVOKE}a">{PARAMETER}n" string="false">x</｜DSML｜parameter></｜DSML｜invoke>')],
    ),
    (
        "DeepSeek V3.2, not closed",
        DSML,
        f'<｜DSML｜function_calls>{INVOKE}a">',
        [T(f'<｜DSML｜function_calls>{INVOKE}a">')],
    ),
    (
        "Mistral Nemo",
        MISTRAL,
        'Hm. [TOOL_CALLS] [{"name": "mill", "arguments": {"n": 1}, "id": "abc"}, {"name": "b", "arguments": {}}]',
        [T("Hm. "), call("mill", n=1), call("b")],
    ),
    (
        "Mistral Small",
        MISTRAL,
        '[TOOL_CALLS]mill[CALL_ID]a1[ARGS]{"s": "[TOOL_CALLS]b[ARGS]"}[TOOL_CALLS]b[ARGS] {}',
        [call("mill", s="[TOOL_CALLS]b[ARGS]"), call("b")],
    ),
    ("Mistral, a name alone", MISTRAL, "[TOOL_CALLS]mill", [T("[TOOL_CALLS]mill")]),
    ("Mistral, nothing called", MISTRAL, "[TOOL_CALLS][]", [T("[TOOL_CALLS][]")]),
    ("Mistral, more", MISTRAL, "[TOOL_CALLS]a[ARGS]{} b[ARGS]{}", [T("[TOOL_CALLS]a[ARGS]{} b[ARGS]{}")]),
    ("DeepSeek, no call", DEEPSEEK, f"{BEGIN}{CALL}a{END}", [T(f"{BEGIN}{CALL}a{END}")]),
    (
        "DeepSeek, one that is none",
        DEEPSEEK,
        f"{BEGIN}{CALL}a{SEP}1{CALL_END}{END}",
        [T(f"{BEGIN}{CALL}a{SEP}1{CALL_END}{END}")],
    ),
]


@pytest.mark.parametrize(("form", "reply", "expected"), [row[1:] for row in EXAMPLES], ids=[row[0] for row in EXAMPLES])
def test_calls_are_found_alike_however_the_reply_is_cut(form: ToolForm, reply: str, expected: list[Piece]) -> None:
    assert read(lambda: ToolReader(form), reply) == expected


def as_gemma(value: object, quote: str) -> str:
    """`format_argument` of Gemma 4's chat template, without quotes around keys."""
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_gemma(item, quote)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_gemma(item, quote) for item in value) + "]"
    return json.dumps(value)


def as_qwen35(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


WRITERS: dict[str, tuple[ToolForm, Callable[[str, dict[str, object]], str]]] = {
    "Qwen": (
        QWEN,
        lambda name, given: f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>",
    ),
    "Qwen 3.5": (
        QWEN,
        lambda name, given: (
            f"<tool_call>\n<function={name}>\n"
            + "".join(f"<parameter={key}>\n{as_qwen35(value)}\n</parameter>\n" for key, value in given.items())
            + "</function>\n</tool_call>"
        ),
    ),
    "Llama": (LLAMA, lambda name, given: json.dumps({"name": name, "parameters": given}, ensure_ascii=False)),
    "Gemma": (
        GEMMA,
        lambda name, given: f"<|tool_call>call:{name}{as_gemma(given, '<|' + chr(34) + '|>')}<tool_call|>",
    ),
    "FunctionGemma": (
        FUNCTION_GEMMA,
        lambda name, given: f"<start_function_call>call:{name}{as_gemma(given, '<escape>')}<end_function_call>",
    ),
    "DeepSeek V3": (
        DEEPSEEK,
        lambda name, given: (
            f"{BEGIN}{CALL}function{SEP}{name}\n```json\n{json.dumps(given, ensure_ascii=False)}\n```{CALL_END}{END}"
        ),
    ),
    "DeepSeek V3.2": (
        DSML,
        lambda name, given: (
            f'<｜DSML｜function_calls>\n{INVOKE}{name}">\n'
            + "".join(
                f'{PARAMETER}{key}" string="{json.dumps(isinstance(value, str))}">'
                f"{as_qwen35(value)}</｜DSML｜parameter>\n"
                for key, value in given.items()
            )
            + "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
        ),
    ),
    "Mistral Nemo": (
        MISTRAL,
        lambda name, given: f"[TOOL_CALLS][{json.dumps({'name': name, 'arguments': given})}]",
    ),
    "Mistral Small": (MISTRAL, lambda name, given: f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given, ensure_ascii=False)}"),
    "DeepSeek V3.1": (DEEPSEEK, lambda name, given: f"{BEGIN}{CALL}{name}{SEP}{json.dumps(given)}{CALL_END}{END}"),
}


def anything(draws: random.Random, depth: int) -> object:
    kind = draws.randrange(8 if depth else 5)
    if kind < 2:
        words = ['"', "\\", "{", "}", "[", "]", ",", ":", "\n", " ", "é", "🙂", "```", "a", "b c", "'", "<", "5"]
        return "".join(draws.choices(words, k=draws.randrange(8)))
    if kind < 5:
        return draws.choice((0, -7, 2.5, 1e20, True, False, None))
    items = [anything(draws, depth - 1) for _ in range(draws.randrange(4))]
    return items if kind == 5 else {f"k{n}": item for n, item in enumerate(items)}


@pytest.mark.parametrize("family", WRITERS)
def test_any_arguments_come_back(family: str) -> None:
    form, write = WRITERS[family]
    draws = random.Random(11)
    for _ in range(150):
        given = {f"p{n}": anything(draws, 2) for n in range(draws.randrange(5))}
        # What stands without quotes is told apart by its type, so the tool says which are texts.
        properties = {key: {"type": "string"} if isinstance(value, str) else {} for key, value in given.items()}
        tool = {"type": "function", "function": {"name": "mill", "parameters": {"properties": properties}}}
        reader = ToolReader(form, parameter_types([tool]))
        (found,) = [*reader.push(write("mill", given)), *reader.flush()]
        assert isinstance(found, ToolCall) and found.name == "mill"
        assert json.loads(found.arguments) == given


@pytest.mark.parametrize(
    "form", [QWEN, LLAMA, GEMMA, FUNCTION_GEMMA, DEEPSEEK, DSML, MISTRAL], ids=lambda form: form.name
)
def test_any_mixture_of_markers_is_read_alike_however_it_is_cut(form: ToolForm) -> None:
    draws = random.Random(12)
    words = [
        *filter(None, form.markers),
        '{"name": "a"}',
        "call:a{",
        "}",
        '"',
        "<",
        " ",
        "\n",
        "x",
        CALL,
        SEP,
        CALL_END,
        INVOKE + 'a">',
        "</｜DSML｜invoke>",
        "a[ARGS]{}",
    ]
    for _ in range(120):
        text = "".join(draws.choices(words, k=8))
        come = read(lambda: ToolReader(form), text)
        if not any(isinstance(piece, ToolCall) for piece in come):
            assert come == ([T(text)] if text else [])


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        (QWEN, '<tool_call>{"name": "a", "arguments": ' + "[" * 100_000 + "</tool_call>"),
        (QWEN, '<tool_call>{"name": "a", "arguments": {"a": 1e999}}</tool_call>'),
        (QWEN, '<tool_call>{"name": "a", "arguments": {"a": NaN}}</tool_call>'),
        (QWEN, '<tool_call>{"name": "a", "arguments": {"a": "' + '\\"</tool_call>' * 20_000),
        (QWEN, "<tool_call><function=f>" + "<parameter=a>" * 50_000 + "</function></tool_call>"),
        (GEMMA, "<|tool_call>call:a{a:" + "[" * 100_000 + "<tool_call|>"),
        (GEMMA, "<|tool_call>call:a{" + "{" * 100_000 + "<tool_call|>"),
        (LLAMA, '{"name": "a", "parameters": ' + '{"a":' * 100_000),
        (LLAMA, "{" + " " * 100_000 + '"name": 1}'),
        (DEEPSEEK, BEGIN + CALL * 50_000 + END),
        (DSML, f'<｜DSML｜function_calls>{INVOKE}a">' + f'{PARAMETER}a" string="true">' * 30_000),
        (DSML, f'<｜DSML｜function_calls>{INVOKE}a">' + " " * 100_000 + "</｜DSML｜function_calls>"),
        (MISTRAL, "[TOOL_CALLS]a[ARGS]" + "[" * 100_000),
        (MISTRAL, "[TOOL_CALLS]a[ARGS]{}" * 20_000 + "x"),
    ],
    ids=range(14),
)
def test_what_is_absurd_is_text_and_costs_no_time(form: ToolForm, reply: str) -> None:
    started = time.monotonic()
    reader = ToolReader(form)
    come = [*reader.push(reply), *reader.flush()]
    assert "".join(piece.text for piece in come if isinstance(piece, Text)) == reply
    assert time.monotonic() - started < 5


def test_half_a_surrogate_pair_is_written_as_json_writes_it() -> None:
    reader = ToolReader(QWEN)
    (found,) = reader.push('<tool_call>{"name": "a", "arguments": {"s": "\\ud83d"}}</tool_call>')
    assert found == ToolCall("a", '{"s": "\\ud83d"}')


def test_a_type_that_is_known_decides_what_stands_without_quotes() -> None:
    schema = {"properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    reader = ToolReader(QWEN, parameter_types([{"name": "f", "parameters": schema}]))
    (found,) = reader.push(
        "<tool_call><function=f><parameter=id>5</parameter><parameter=n>5</parameter></function></tool_call>"
    )
    assert found == call("f", id="5", n=5)


def test_a_template_without_tools_has_no_form() -> None:
    assert tool_form("{{ '<|im_start|>' }}") is None


def test_the_vocabulary_counts_where_the_template_says_nothing() -> None:
    assert tool_form("{{ tools }}", {"<|python_tag|>"}) is LLAMA
    assert tool_form("<tool_call>", {"<|python_tag|>"}) is QWEN
