"""A file that describes tools: a list of JSON schemas, as chat templates and other programs take them."""

from __future__ import annotations

import json
from typing import Final

from engine import SettingsError, Tool
from engine.small_file import open_now

MAX_BYTES: Final = 1 << 20


def read_tools(path: str) -> tuple[Tool, ...]:
    """The tools of a list of `{"name": …, "description": …, "parameters": {…}}`, each alone or in
    `{"type": "function", "function": …}`. A pipe is read to its end. Raises SettingsError, which
    names the file, for anything else.
    """
    from engine.text.conversation import descriptions

    try:
        with open_now(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SettingsError(f"The tools in {path} cannot be read: {reason}.") from error
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path} has more than {MAX_BYTES} bytes, the most that a file of tools may have.")
    try:
        listed = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path} is not JSON (line {error.lineno}, column {error.colno}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 text.") from error
    except (RecursionError, ValueError) as error:  # too deep, or a number of too many digits
        raise SettingsError(f"{path} is not JSON that can be read.") from error
    if not isinstance(listed, list) or not listed:
        raise SettingsError(f"{path} must hold a list of tools, each a JSON object with its name.")
    tools = tuple(_tool(entry, f"Tool {number} in {path}") for number, entry in enumerate(listed, start=1))
    try:
        descriptions(tools)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error
    return tools


def _tool(entry: object, where: str) -> Tool:
    function = entry.get("function", entry) if isinstance(entry, dict) else None
    if not isinstance(function, dict):
        raise SettingsError(f"{where} is not a JSON object that describes one.")
    name, description = function.get("name"), function.get("description", "")
    if not isinstance(name, str) or not name.strip():
        raise SettingsError(f"{where} has no name.")
    if not isinstance(description, str):
        raise SettingsError(f"{where} has a description that is no text.")
    if function.get("parameters") is None:
        return Tool(name, description)
    return Tool(name, description, json.dumps(function["parameters"], ensure_ascii=False))
