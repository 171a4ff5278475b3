"""What a reply says to the person → text and calls of tools, by the markers of the model's family.

Forms, with their sources: Qwen 2.5 and 3 (their chat templates: JSON in `<tool_call>`), Qwen 3.5 and Qwen3-Coder
(theirs: `<function=…>` in it), Llama 3 (Meta, "Llama 3.1 prompt formats"), Gemma 4 (its chat template), FunctionGemma
(Google, "FunctionGemma formatting"), DeepSeek V3, R1 and V3.1 (their chat templates), DeepSeek V3.2 and V4 (theirs:
`<｜DSML｜invoke …>`), Mistral (Nemo's chat template: a list in JSON; that of Small 3.2: `NAME[ARGS]{…}`). GPT-OSS's
calls come with its channels (`engine.text.harmony`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.text import callforms
from engine.text.callforms import ParameterTypes
from engine.text.markers import undecided
from engine.types import Text, ToolCall

_PATIENCE: Final = 16
"""So many closing markers may stand in the arguments' own texts; bounds the cost of looking."""


@dataclass(frozen=True)
class ToolForm:
    """Calls stand between `open` and `close`, or up to the end of the reply where `close` is empty.

    `read` takes what stands between, and raises ValueError where it is no call; `in_text` says whether it ends within
    the text of an argument, where a closing marker is none. `bare`: a reply that is JSON from its start is a call too.
    `inner` are other tokens that must be seen to read a call. `signs` tell the form where its opening marker does not
    stand in a template as a whole.
    """

    name: str
    open: str
    close: str
    read: Callable[[str, ParameterTypes], list[ToolCall]]
    in_text: Callable[[str], bool]
    bare: bool = False
    inner: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of tokens that must be seen to read a reply."""
        return tuple(filter(None, (self.open, self.close, *self.inner)))


_FORMS: Final = (
    ToolForm(
        "gemma4",
        "<|tool_call>",
        "<tool_call|>",
        callforms.gemma4,
        callforms.in_gemma4_text,
        inner=(callforms.GEMMA4_QUOTE,),
    ),
    ToolForm(
        "functiongemma",
        "<start_function_call>",
        "<end_function_call>",
        callforms.functiongemma,
        callforms.in_functiongemma_text,
        inner=(callforms.FUNCTIONGEMMA_QUOTE,),
    ),
    ToolForm(
        "deepseek",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        callforms.deepseek,
        callforms.in_json_text,
        inner=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    ),
    *(
        ToolForm(
            "deepseek-dsml",
            f"<｜DSML｜{calls}>",
            f"</｜DSML｜{calls}>",
            callforms.dsml,
            callforms.in_dsml_text,
            inner=("｜DSML｜",),
            signs=("｜DSML｜", f"{calls}>"),
        )
        for calls in ("function_calls", "tool_calls")
    ),
    ToolForm(
        "mistral",
        "[TOOL_CALLS]",
        "",
        callforms.mistral,
        callforms.in_json_text,
        inner=("[ARGS]", "[CALL_ID]"),
    ),
    ToolForm("qwen", "<tool_call>", "</tool_call>", callforms.qwen, callforms.in_qwen_text),
    ToolForm("llama3", "<|python_tag|>", "", callforms.llama3, callforms.in_json_text, bare=True),
)
KNOWN: Final = tuple(dict.fromkeys(form.name for form in _FORMS))


def tool_form(template: str, tokens: Container[str] = ()) -> ToolForm | None:
    """The form whose opening marker the chat template writes, or else the vocabulary has, if there is one."""
    for known in (template, tokens):
        for form in _FORMS:
            if all(sign in known for sign in form.signs or (form.open,)):
                return form
    return None


def parameter_types(tools: Sequence[Mapping[str, object]]) -> ParameterTypes:
    """JSON Schema's type of each parameter, by tool, from descriptions such as chat templates take.

    A form that writes arguments without quotes needs them to tell "5" from 5.
    """
    types: dict[str, dict[str, object]] = {}
    for tool in tools:
        function = tool.get("function", tool)
        parameters = function.get("parameters") if isinstance(function, Mapping) else None
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        if isinstance(function, Mapping) and isinstance(properties, Mapping):
            types[str(function.get("name"))] = {
                str(key): value.get("type") for key, value in properties.items() if isinstance(value, Mapping)
            }
    return types


class ToolReader:
    """Reads one reply. However it is cut into pieces, the calls and the joined text are the same.

    What looks like a call and is none is text, as it was written. Blanks and line ends after a call are left out.
    """

    def __init__(self, form: ToolForm, types: ParameterTypes | None = None) -> None:
        self._form = form
        self._types = types or {}
        self._read = self._begin if form.bare else self._speak
        self._held = ""
        self._opening = ""
        """What began the call that is being read."""
        self._seen = 0
        """How much of the held call has no closing marker."""
        self._passed = 0
        self._trim = False

    def push(self, text: str) -> list[Text | ToolCall]:
        self._held += text
        pieces: list[Text | ToolCall] = []
        while self._read(pieces):
            pass
        return pieces

    def flush(self) -> list[Text | ToolCall]:
        """What was held back, now that no more text comes. A call needs no closing marker at the end."""
        pieces: list[Text | ToolCall] = []
        held, self._held = self._held, ""
        if self._read == self._collect:
            self._finish(pieces, held, "")
        else:
            self._say(pieces, held)
        return pieces

    def _begin(self, pieces: list[Text | ToolCall]) -> bool:
        """→ Whether there is more to do, in another state."""
        start = self._held.lstrip()
        if self._form.open.startswith(start):
            return False
        bare = callforms.begins_bare_call(start)
        if bare is None:
            return False
        self._read = self._collect if bare else self._speak
        return True

    def _speak(self, pieces: list[Text | ToolCall]) -> bool:
        before, opening, after = self._held.partition(self._form.open)
        if opening:
            self._say(pieces, before)
            self._held, self._opening, self._seen, self._passed = after, opening, 0, 0
            self._read = self._collect
            return True
        safe = undecided(self._held, [self._form.open])
        self._say(pieces, self._held[:safe])
        self._held = self._held[safe:]
        return False

    def _collect(self, pieces: list[Text | ToolCall]) -> bool:
        close = self._form.close
        while close and (at := self._held.find(close, self._seen)) >= 0:
            if self._passed < _PATIENCE and self._form.in_text(self._held[:at]):
                self._passed += 1
                self._seen = at + len(close)
                continue
            body, self._held = self._held[:at], self._held[at + len(close) :]
            self._read = self._speak
            self._finish(pieces, body, close)
            return True
        self._seen = max(self._seen, len(self._held) - len(close) + 1)
        return False

    def _finish(self, pieces: list[Text | ToolCall], body: str, closing: str) -> None:
        try:
            pieces += self._form.read(body, self._types)
            self._trim = True
        except ValueError:
            self._say(pieces, self._opening + body + closing)

    def _say(self, pieces: list[Text | ToolCall], text: str) -> None:
        if self._trim:
            text = text.lstrip()
        if text:
            self._trim = False
            pieces.append(Text(text))
