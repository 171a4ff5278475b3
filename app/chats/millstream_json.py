"""Our own form of an export: a list of JSON, one element a line.

The first element says what it is; the others are chats and, each before the first chat that shows it, pictures. As each
line is whole by itself, a damaged one costs no other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final, Literal, cast, get_args

from app.chats.portable import PortableChat, PortableMessage
from app.chats.records import LATEST, ROLES, STATES, Picture, State, Timing
from engine.types import FinishReason, Role, ToolCall

FORMAT: Final = "millstream-chats"
VERSION: Final = 1
HEADER: Final[Mapping[str, object]] = {"format": FORMAT, "version": VERSION}
_COUNTS: Final = ("tokens", "prompt_tokens", "cached_tokens")


def kind(value: Mapping[str, object]) -> Literal["header", "chat", "picture", ""]:
    if value.get("format") == FORMAT:
        return "header"
    return "chat" if "messages" in value else "picture" if "sha256" in value else ""


def from_picture(digest: str, data: bytes) -> dict[str, object]:
    return {"sha256": digest, "data": base64.b64encode(data).decode()}


def to_picture(value: Mapping[str, object]) -> tuple[str, bytes]:
    """→ digest and bytes. Raises ValueError where they are not of each other."""
    try:
        data = base64.b64decode(text(value, "data"), validate=True)
    except binascii.Error:
        raise ValueError("its bytes are damaged") from None
    if hashlib.sha256(data).hexdigest() != value.get("sha256"):
        raise ValueError("its bytes are damaged")
    return text(value, "sha256"), data


def from_chat(chat: PortableChat) -> dict[str, object]:
    fields = asdict(chat)
    for message in fields["messages"]:
        message["timing"] = {name: value for name, value in message["timing"].items() if value is not None}
        for name in [name for name, value in message.items() if value in (None, "", (), {})]:
            if name not in ("text", "parent"):
                del message[name]
    return fields


def to_chat(value: Mapping[str, object], now: float) -> tuple[PortableChat, list[str]]:
    """→ the chat, and what is wrong with single messages, in a few words each. Raises ValueError for what is none."""
    listed = value.get("messages")
    if not isinstance(listed, list):
        raise ValueError("it has no list of messages")
    made = time(value.get("made"), now)
    faults: list[str] = []
    messages: dict[str, PortableMessage] = {}
    for number, each in enumerate(listed, 1):
        try:
            message = _message(each, made)
        except ValueError as error:
            faults.append(f"message {number}: {error}")
            continue
        if message.key in messages:
            faults.append(f"message {number}: there are two of its name")
            continue
        if message.parent is not None and message.parent not in messages:
            faults.append(f"message {number} is kept, and the one before it is missing")
            message = replace(message, parent=next(reversed(messages), None))
        messages[message.key] = message
    settings = value.get("settings")
    chat = PortableChat(
        uid=_uid(value),
        title=text(value, "title"),
        made=made,
        changed=time(value.get("changed"), made),
        messages=tuple(messages.values()),
        chosen=_optional(value, "chosen"),
        pinned=value.get("pinned") is True,
        folder=text(value, "folder"),
        model=text(value, "model"),
        system=text(value, "system"),
        settings=settings if isinstance(settings, dict) else {},
        draft=text(value, "draft"),
    )
    return chat, faults


def text(value: Mapping[str, object], key: str) -> str:
    """ "" where it is absent. Raises ValueError for what is no text."""
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise ValueError(f"its {key} is not a text")
    return found


def time(value: object, otherwise: float) -> float:
    found = number(value)
    return otherwise if found is None or not 0 <= found <= LATEST else found


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _uid(value: Mapping[str, object]) -> str:
    uid = text(value, "uid")
    if not re.fullmatch(r"[\w-]{1,100}", uid):
        raise ValueError("it has no name of its own (uid)")
    return uid


def _message(value: object, made: float) -> PortableMessage:
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    key, role, state = text(value, "key"), value.get("role"), value.get("state", "done")
    if not key:
        raise ValueError("it has no key")
    if role not in ROLES:
        raise ValueError("its role is not known")
    if not isinstance(value.get("text"), str):
        raise ValueError("its text is missing")
    reason = value.get("reason")
    return PortableMessage(
        key=key,
        parent=_optional(value, "parent"),
        role=cast(Role, role),
        text=text(value, "text"),
        made=time(value.get("made"), made),
        chosen=_optional(value, "chosen"),
        reasoning=text(value, "reasoning"),
        state="stopped" if state == "under way" or state not in STATES else cast(State, state),
        sentence=text(value, "sentence"),
        model=text(value, "model"),
        reason=cast(FinishReason, reason) if reason in get_args(FinishReason) else None,
        timing=_timing(value.get("timing")),
        calls=_calls(value.get("calls")),
        pictures=_pictures(value.get("pictures")),
    )


def _optional(value: Mapping[str, object], key: str) -> str | None:
    return text(value, key) or None


def _timing(value: object) -> Timing:
    if not isinstance(value, dict):
        return Timing()
    read = {name: number(value.get(name)) for name in Timing.__dataclass_fields__}
    counts = {name: None if (found := read.pop(name)) is None else int(max(0, min(found, 1e15))) for name in _COUNTS}
    return Timing(**counts, **read)  # type: ignore[arg-type]


def _calls(value: object) -> tuple[ToolCall, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(ToolCall(text(each, "name"), text(each, "arguments")) for each in listed if isinstance(each, dict))


def _pictures(value: object) -> tuple[Picture, ...]:
    listed = value if isinstance(value, list) else []
    return tuple(Picture(text(each, "digest"), text(each, "name"), 0, 0) for each in listed if isinstance(each, dict))
