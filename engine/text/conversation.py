"""Messages and tools → the values that chat templates take, in the form of Transformers' guide to tool use.

A call is `{"type": "function", "id": …, "function": {"name": …, "arguments": {…}}}`; its result is a message with the
role `tool` and the call's id and name; a tool is `{"type": "function", "function": {…}}` with a JSON Schema.
"""

from __future__ import annotations

import json
import reprlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import SettingsError
from engine.text.calls import json_value
from engine.types import PLACE, Message, Tool, ToolCall

Guard = Callable[[str], str]
"""What is done to every text that somebody wrote."""


@dataclass(frozen=True)
class CallStyle:
    """What a template takes for an assistant's turn that makes calls.

    `objects`: arguments as an object, else as JSON text. `absent`: no content is `None`, else an empty text.
    """

    objects: bool
    absent: bool


CALL_STYLES: Final = (CallStyle(True, False), CallStyle(False, True), CallStyle(False, False), CallStyle(True, True))
"""The usual one first. The second is that of DeepSeek V3 and R1."""

_DEEPEST: Final = 64


def unchanged(text: str) -> str:
    return text


def turns(
    messages: Sequence[Message], style: CallStyle = CALL_STYLES[0], guard: Guard = unchanged, *, parts: bool = False
) -> list[dict[str, object]]:
    """The messages as templates take them; with `parts` every content is a list of texts and pictures.

    Raises SettingsError where a result belongs to no call, or a call's arguments are no JSON object.
    """
    told: list[dict[str, object]] = []
    waiting: deque[tuple[str, str]] = deque()
    count = 0
    for message in messages:
        turn: dict[str, object] = {"role": message.role, "content": _content(message, guard, parts)}
        if message.calls and message.role != "assistant":
            raise SettingsError(f"Only an assistant's message can call tools, not one of the role {message.role!r}.")
        if message.role == "tool":
            if not waiting:
                raise SettingsError("A tool's result must follow the call that it answers: one result for each call.")
            turn["tool_call_id"], turn["name"] = waiting.popleft()
        else:
            waiting.clear()
        if message.calls:
            named = [(_identifier(count + n), guard(call.name)) for n, call in enumerate(message.calls)]
            waiting.extend(named)
            count += len(named)
            turn["tool_calls"] = [
                {
                    "type": "function",
                    "id": identifier,
                    "function": {"name": name, "arguments": _arguments(call, style, guard)},
                }
                for call, (identifier, name) in zip(message.calls, named, strict=True)
            ]
            if style.absent and not message.content:
                turn["content"] = None
        if message.reasoning:
            turn["reasoning_content"] = guard(message.reasoning)
            if not (message.calls and message.content):  # GPT-OSS's template refuses both
                turn["thinking"] = turn["reasoning_content"]
        told.append(turn)
    return told


def _content(message: Message, guard: Guard, parts: bool) -> object:
    """Text, or text and pictures in their order as templates of models that see take them."""
    if not message.images:
        return [{"type": "text", "text": guard(message.content)}] if parts else guard(message.content)
    pieces = message.content.split(PLACE)
    told: list[dict[str, object]] = [{"type": "image"}] * max(len(message.images) - len(pieces) + 1, 0)
    left = len(message.images) - len(told)
    for number, piece in enumerate([*pieces[:left], PLACE.join(pieces[left:])]):
        if number:
            told.append({"type": "image"})
        if piece:
            told.append({"type": "text", "text": guard(piece)})
    return told


def descriptions(tools: Sequence[Tool], guard: Guard = unchanged) -> list[dict[str, object]]:
    """The tools as templates take them. Raises SettingsError for a tool without a name of its own or a schema."""
    names: set[str] = set()
    described: list[dict[str, object]] = []
    for tool in tools:
        if not tool.name.strip():
            raise SettingsError("A tool must have a name.")
        if tool.name in names:
            raise SettingsError(f"Two tools have the name {reprlib.repr(tool.name)}: each needs one of its own.")
        names.add(tool.name)
        function = {
            "name": guard(tool.name),
            "description": guard(tool.description),
            "parameters": _guarded(_object(tool.parameters, f"The parameters of {reprlib.repr(tool.name)}"), guard),
        }
        described.append({"type": "function", "function": function})
    return described


def texts(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[str]:
    """Every text that the messages and tools hold."""
    for message in messages:
        yield message.content
        yield message.reasoning
        for call in message.calls:
            yield call.name
            yield from _texts(_object(call.arguments, f"The arguments of {reprlib.repr(call.name)}"))
    yield from _texts(descriptions(tools))


def size(messages: Sequence[Message], tools: Sequence[Tool]) -> int:
    """Characters in all."""
    said = sum(len(message.content) + len(message.reasoning) for message in messages)
    called = sum(len(call.name) + len(call.arguments) for message in messages for call in message.calls)
    return said + called + sum(len(tool.name) + len(tool.description) + len(tool.parameters) for tool in tools)


def _identifier(number: int) -> str:
    """Mistral's templates want nine letters and digits."""
    return f"call{number:05d}"


def _arguments(call: ToolCall, style: CallStyle, guard: Guard) -> object:
    given = _guarded(_object(call.arguments, f"The arguments of {reprlib.repr(call.name)}"), guard)
    return given if style.objects else json.dumps(given, ensure_ascii=False)


def _object(text: str, what: str) -> Mapping[str, object]:
    try:
        value = json_value(text)
    except ValueError as error:
        raise SettingsError(f"{what} must be a JSON object, but cannot be read: {str(error)[:100]}.") from None
    if not isinstance(value, dict):
        raise SettingsError(f"{what} must be a JSON object, not {reprlib.repr(text)}.")
    level: list[object] = [value]
    for _ in range(_DEEPEST):
        level = [item for outer in level for item in _inner(outer)]
    if level:
        raise SettingsError(f"{what} are nested more than {_DEEPEST} deep.")
    return value


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _texts(value: object) -> Iterator[str]:
    """Every text in a value as JSON has them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from _texts(pair)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _guarded(value: object, guard: Guard) -> object:
    if isinstance(value, str):
        return guard(value)
    if isinstance(value, Mapping):
        return {_guarded(key, guard): _guarded(item, guard) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_guarded(item, guard) for item in value]
    return value
