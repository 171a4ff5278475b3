"""What a model wrote of a call → the call. All raise ValueError on what is no call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from engine.types import ToolCall


def json_value(text: str) -> object:
    """One JSON value and nothing else."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_call(name: str, arguments: str) -> ToolCall:
    """A call whose arguments are a JSON object."""
    return call_of(name, json_value(arguments))


def code_call(name: str, code: str) -> ToolCall:
    """A call of an interpreter, whose argument is code as it is."""
    return call_of(name, {"code": code})


def call_of(name: object, arguments: object) -> ToolCall:
    """`arguments` are an object as JSON has them, one that is written as text, or None where there are none."""
    if isinstance(arguments, str):
        arguments = json_value(arguments)
    if not isinstance(name, str) or not name.strip() or not isinstance(arguments, (Mapping, type(None))):
        raise ValueError("a call has a name, and an object of arguments")
    return ToolCall(name.strip(), _dumped(arguments or {}))


def _dumped(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write and UTF-8 cannot
        return json.dumps(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
