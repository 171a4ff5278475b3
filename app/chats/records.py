"""What the store hands out and takes: plain frozen data. Times are seconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from engine.types import FinishReason, Role, ToolCall

State = Literal["under way", "done", "stopped", "failed"]
STATES: Final = ("under way", "done", "stopped", "failed")
EARLIEST: Final = 2 * 86_400.0
LATEST: Final = 32_500_000_000.0
"""Windows shows no times before 1970 in any zone, nor after the year 3000."""
_UNFIT: Final = re.compile("[\ud800-\udfff\0]")
ROLES: Final = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class ChatLine:
    """A chat as a list shows it. `changed` is when the last message came."""

    id: int
    title: str
    made: float
    changed: float
    pinned: bool
    folder: int | None
    deleted_at: float | None
    """When it went to the trash."""


@dataclass(frozen=True)
class Chat(ChatLine):
    """All of a chat but its messages. `uid` is its name in every copy; `settings` is an object of JSON."""

    uid: str
    model: str
    system: str
    settings: Mapping[str, object]
    draft: str


@dataclass(frozen=True)
class Folder:
    id: int
    name: str
    chats: int
    """How many are in it, those in the trash left out."""


@dataclass(frozen=True)
class Picture:
    """A picture of a message, without its bytes: `Pictures.read` has them. `width` and `height` are pixels."""

    digest: str
    name: str
    width: int
    height: int


@dataclass(frozen=True)
class Timing:
    """What a reply took; None where it was not measured. `reasoning_s` is how long the model reasoned."""

    tokens: int | None = None
    tok_s: float | None = None
    first_token_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_s: float | None = None


@dataclass(frozen=True)
class Turn:
    """A message on the chosen path of its chat. It is the `version`th of `versions` that follow the same `parent`.

    `sentence` says why a reply failed, or was cut off. `model` is the name of the one that answered.
    """

    id: int
    chat: int
    parent: int | None
    role: Role
    state: State
    sentence: str
    model: str
    made: float
    reason: FinishReason | None
    timing: Timing
    calls: tuple[ToolCall, ...]
    reasoning: str
    text: str
    version: int
    versions: int
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Begun:
    """The messages that a sending made: what was asked, and the reply that is to come."""

    prompt: int
    reply: int


@dataclass(frozen=True)
class Snippet:
    """A piece of a text around what was found. `marks` are the places in `text` of what was looked for."""

    text: str
    marks: tuple[tuple[int, int], ...] = field(default=())


@dataclass(frozen=True)
class Hit:
    """A chat whose title, or a message whose text, holds all that was looked for. `message` is None for a title."""

    chat: int
    title: Snippet
    message: int | None
    role: Role | None
    made: float
    snippet: Snippet


def clean(text: str) -> str:
    """As it can be kept: a half of a surrogate pair, and NUL, at which SQLite's functions end, become U+FFFD."""
    return _UNFIT.sub("\ufffd", text)


def moment(seconds: float) -> datetime:
    """In this machine's time zone. A time that no system can show, from a file of others, becomes the nearest one."""
    return datetime.fromtimestamp(min(max(seconds, EARLIEST), LATEST))
