"""What stands between the markers of a call, by the model's family: → the calls. Sources: `engine.text.tools`.

Every reader raises ValueError on what is no call of its form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from json import JSONDecoder
from typing import Final

from engine.text.calls import call_of, code_call, json_call, json_value
from engine.types import ToolCall

ParameterTypes = Mapping[str, Mapping[str, object]]
"""JSON Schema's type of each parameter, by the tool's name."""

GEMMA4_QUOTE: Final = '<|"|>'
FUNCTIONGEMMA_QUOTE: Final = "<escape>"

_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.|\\\Z)*+("|\Z)', re.DOTALL)
_BARE: Final = ('{"name":', '{"type":"function"', '{"function":')
_BUILT_IN: Final = re.compile(r"(\w[\w.]*)\.call\((.*)\)", re.DOTALL)
_KEYWORD: Final = re.compile(r'\s*(\w+)\s*=\s*"((?:[^"\\]|\\.)*+)"\s*(?:,|\Z)', re.DOTALL)
_PYTHON_WORDS: Final = {"True": True, "False": False, "None": None}
_DSML_INVOKE: Final = re.compile(r'\s*<｜DSML｜invoke name="([^"]*)">\s*')
_DSML_PARAMETER: Final = re.compile(
    r'<｜DSML｜parameter name="([^"]*)" string="(true|false)">(.*?)</｜DSML｜parameter>\s*', re.DOTALL
)
_DSML_CLOSED: Final = re.compile(r"</｜DSML｜invoke>\s*")
_DEEPEST: Final = 64
_DECODER: Final = JSONDecoder()
_SEPARATORS: Final = "; \t\r\n"


def in_json_text(text: str) -> bool:
    """Whether `text` ends within a text of JSON."""
    closed = True
    for found in _JSON_TEXT.finditer(text):
        closed = bool(found[1])
    return not closed


def in_qwen_text(text: str) -> bool:
    return text.lstrip().startswith("{") and in_json_text(text)


def in_gemma4_text(text: str) -> bool:
    return text.count(GEMMA4_QUOTE) % 2 == 1


def in_functiongemma_text(text: str) -> bool:
    return text.count(FUNCTIONGEMMA_QUOTE) % 2 == 1


def in_dsml_text(text: str) -> bool:
    return text.rfind("<｜DSML｜parameter ") > text.rfind("</｜DSML｜parameter>")


def begins_bare_call(start: str) -> bool | None:
    """Whether a reply that begins with `start`, blanks left out, is a call as JSON. None: more of it must be seen."""
    compact = ""
    for char in start[:200]:
        compact += "" if char.isspace() else char
        if compact in _BARE:
            return True
        if not any(bare.startswith(compact) for bare in _BARE):
            return False
    return None if len(start) <= 200 else False


def qwen(body: str, types: ParameterTypes) -> list[ToolCall]:
    """`{"name": …, "arguments": {…}}`, or `<function=NAME><parameter=KEY>VALUE</parameter></function>`."""
    body = body.strip()
    if not body.startswith("<function="):
        call = json_value(body)
        if not isinstance(call, Mapping):
            raise ValueError("a call is an object")
        return [call_of(call.get("name"), call.get("arguments", call.get("parameters")))]
    name, closing, rest = body.removeprefix("<function=").partition(">")
    inner, end, after = rest.rpartition("</function>")
    if not closing or not end or after.strip():
        raise ValueError("the function is not closed")
    first, *written = inner.split("<parameter=")
    if first.strip():
        raise ValueError("only parameters stand in a function")
    arguments = {}
    for parameter in written:
        key, _, rest = parameter.partition(">")
        value, end, after = rest.partition("</parameter>")
        if not end or after.strip():
            raise ValueError("the parameter is not closed")
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[key.strip()] = _unquoted(value, types.get(name.strip(), {}).get(key.strip()))
    return [call_of(name, arguments)]


def llama3(body: str, types: ParameterTypes) -> list[ToolCall]:
    """JSON, one object or several; a built-in tool as `NAME.call(KEY="VALUE")`; or else code for the interpreter."""
    body = body.strip()
    if body.startswith("{"):
        return _json_calls(body)
    if built_in := _BUILT_IN.fullmatch(body):
        arguments, at = {}, 0
        while keyword := _KEYWORD.match(built_in[2], at):
            arguments[keyword[1]] = keyword[2]
            at = keyword.end()
        if at == len(built_in[2]):
            return [call_of(built_in[1], arguments)]
    if not body:
        raise ValueError("no code")
    return [code_call("code_interpreter", body)]


def _json_calls(body: str) -> list[ToolCall]:
    calls = []
    while body:
        call, end = _first_json(body)
        if not isinstance(call, Mapping):
            raise ValueError("a call is an object")
        call = call["function"] if isinstance(call.get("function"), Mapping) else call
        name = call.get("name", call.get("function"))
        calls.append(call_of(name, call.get("parameters", call.get("arguments"))))
        body = body[end:].lstrip(_SEPARATORS)
    return calls


def mistral(body: str, types: ParameterTypes) -> list[ToolCall]:
    """`[{"name": …, "arguments": {…}, "id": …}, …]`, or `NAME[CALL_ID]ID[ARGS]{…}`, each after a marker of its own."""
    body = body.strip()
    calls = []
    if body.startswith("["):
        listed, end = _first_json(body)
        if not isinstance(listed, list) or not listed or body[end:].strip():
            raise ValueError("calls are a list")
        for call in listed:
            if not isinstance(call, Mapping):
                raise ValueError("a call is an object")
            calls.append(call_of(call.get("name"), call.get("arguments")))
        return calls
    while body:
        name, marker, rest = body.partition("[ARGS]")
        if not marker:
            raise ValueError("no arguments")
        rest = rest.lstrip()
        arguments, end = _first_json(rest)
        calls.append(call_of(name.partition("[CALL_ID]")[0], arguments))
        rest = rest[end:].strip()
        body = rest.removeprefix("[TOOL_CALLS]")
        if rest and body == rest:
            raise ValueError("more than calls")
    if not calls:
        raise ValueError("no call")
    return calls


def dsml(body: str, types: ParameterTypes) -> list[ToolCall]:
    """`invoke name="NAME"` with `parameter name="KEY" string="true"` in it; every tag begins with `｜DSML｜`."""
    calls = []
    at = 0
    while invoke := _DSML_INVOKE.match(body, at):
        at = invoke.end()
        arguments: dict[str, object] = {}
        while parameter := _DSML_PARAMETER.match(body, at):
            key, string, value = parameter.groups()
            arguments[key] = value if string == "true" else json_value(value)
            at = parameter.end()
        if (closed := _DSML_CLOSED.match(body, at)) is None:
            raise ValueError("the call is not closed")
        at = closed.end()
        calls.append(call_of(invoke[1], arguments))
    if not calls or body[at:].strip():
        raise ValueError("no call")
    return calls


def deepseek(body: str, types: ParameterTypes) -> list[ToolCall]:
    """Several calls: `function<SEP>NAME` and JSON in a fence (V3, R1), or `NAME<SEP>` and JSON (V3.1)."""
    before, *written = body.split("<｜tool▁call▁begin｜>")
    if before.strip() or not written:
        raise ValueError("no call")
    calls = []
    for text in written:
        head, separator, rest = text.strip().removesuffix("<｜tool▁call▁end｜>").partition("<｜tool▁sep｜>")
        if not separator:
            raise ValueError("no name")
        name, fence, fenced = rest.partition("\n```json\n")
        if fence:
            calls.append(json_call(name, fenced.rstrip().removesuffix("```")))
        else:
            calls.append(json_call(head, rest))
    return calls


def gemma(body: str, types: ParameterTypes, *, quote: str) -> list[ToolCall]:
    """`call:NAME{KEY:VALUE,…}`, in which texts stand between two `quote`, and objects and lists as in JSON."""
    head, brace, _ = body.partition("{")
    name = head.strip().removeprefix("call:")
    if not brace or name == head.strip():
        raise ValueError("no call")
    reader = _GemmaValue(body, len(head), quote)
    arguments = reader.value(0)
    if body[reader.at :].strip():
        raise ValueError("more than a call")
    return [call_of(name, arguments)]


gemma4 = partial(gemma, quote=GEMMA4_QUOTE)
functiongemma = partial(gemma, quote=FUNCTIONGEMMA_QUOTE)


class _GemmaValue:
    """Reads one value, at `at` of a text, and moves on behind it."""

    def __init__(self, text: str, at: int, quote: str) -> None:
        self.at = at
        self._text = text
        self._quote = quote
        self._bare = re.compile(r"[^,:\[\]{}]*")

    def value(self, depth: int) -> object:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if self._take("{"):
            members: dict[str, object] = {}
            while not self._take("}"):
                key = self._quoted()
                key = self._run().strip() if key is None else key
                self._expect(":")
                members[key] = self.value(depth + 1)
                self._separate("}")
            return members
        if self._take("["):
            items: list[object] = []
            while not self._take("]"):
                items.append(self.value(depth + 1))
                self._separate("]")
            return items
        text = self._quoted()
        return _unquoted(self._scalar(), None) if text is None else text

    def _scalar(self) -> str:
        """A value without quotes, up to what ends it. A colon may stand in it, as in a time."""
        start = self.at
        while self.at < len(self._text) and self._text[self.at] not in ",]}":
            self.at += 1
        text = self._text[start : self.at].strip()
        if not text:
            raise ValueError("no value")
        return text

    def _quoted(self) -> str | None:
        if not self._take(self._quote):
            return None
        end = self._text.find(self._quote, self.at)
        if end < 0:
            raise ValueError("the text is not closed")
        text = self._text[self.at : end]
        self.at = end + len(self._quote)
        return text

    def _run(self) -> str:
        found = self._bare.match(self._text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]

    def _take(self, what: str) -> bool:
        while self.at < len(self._text) and self._text[self.at].isspace():
            self.at += 1
        taken = self._text.startswith(what, self.at)
        self.at += len(what) * taken
        return taken

    def _expect(self, what: str) -> None:
        if not self._take(what):
            raise ValueError(f"no {what}")

    def _separate(self, end: str) -> None:
        """A comma, or the end, which stays."""
        if not self._take(","):
            self._expect(end)
            self.at -= len(end)


def _first_json(text: str) -> tuple[object, int]:
    """The JSON value at the start, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value, end


def _unquoted(text: str, kind: object) -> object:
    """A value that was written without quotes. `kind` is its type where it is known."""
    if kind == "string":
        return text
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    try:
        value = json_value(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value
