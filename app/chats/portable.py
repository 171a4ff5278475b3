"""A chat outside of any store: what files of exports hold, and how it is taken out of a store and put into one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.attachment import Attachment
from app.chats.listing import as_json, folder_named, from_json
from app.chats.pictures import attach_to, of_messages, pack
from app.chats.records import Picture, State, Timing, clean
from app.chats.turns import as_calls
from engine.types import FinishReason, Role, ToolCall


@dataclass(frozen=True)
class PortableMessage:
    """`key` is its name within the chat, `parent` that of the message before it, `chosen` of the one shown after it."""

    key: str
    parent: str | None
    role: Role
    text: str
    made: float
    chosen: str | None = None
    reasoning: str = ""
    state: State = "done"
    sentence: str = ""
    model: str = ""
    reason: FinishReason | None = None
    timing: Timing = field(default=Timing())
    calls: tuple[ToolCall, ...] = ()
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class PortableChat:
    """Its messages stand after those that they follow. `folder` is a name, "" for none."""

    uid: str
    title: str
    made: float
    changed: float
    messages: tuple[PortableMessage, ...]
    chosen: str | None = None
    pinned: bool = False
    folder: str = ""
    model: str = ""
    system: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    draft: str = ""


def take_out(connection: sqlite3.Connection, chat: int) -> PortableChat | None:
    """A chat with all its branches, but for what was deleted. None where there is no such chat."""
    row = connection.execute(
        "SELECT uid, title, chats.made, changed, chosen, pinned, folders.name, model, system, settings, draft"
        " FROM chats LEFT JOIN folders ON folders.id = folder WHERE chats.id = ?",
        (chat,),
    ).fetchone()
    if row is None:
        return None
    pictures = of_messages(connection, "message IN (SELECT id FROM messages WHERE chat = ?)", (chat,))
    kept: dict[int, PortableMessage] = {}
    rows = connection.execute(
        "SELECT id, parent, chosen, deleted_at, role, text, made, reasoning, state, sentence, model, reason, calls,"
        " tokens, tok_s, first_token_s, prompt_tokens, cached_tokens, reasoning_s"
        " FROM messages WHERE chat = ? ORDER BY id",
        (chat,),
    )
    for (
        id,
        parent,
        chosen,
        deleted_at,
        role,
        text,
        made,
        reasoning,
        state,
        sentence,
        model,
        reason,
        calls,
        *took,
    ) in rows:
        if deleted_at is None and (parent is None or parent in kept):
            kept[id] = PortableMessage(
                key=str(id),
                parent=_key(parent),
                role=role,
                text=text,
                made=made,
                chosen=_key(chosen),
                reasoning=reasoning,
                state="stopped" if state == "under way" else state,
                sentence=sentence,
                model=model,
                reason=reason,
                timing=Timing(*took),
                calls=as_calls(calls),
                pictures=tuple(pictures.get(id, ())),
            )
    uid, title, made, changed, first, pinned, folder, model, system, settings, draft = row
    return PortableChat(
        uid=uid,
        title=title,
        made=made,
        changed=changed,
        messages=tuple(kept.values()),
        chosen=_key(first),
        pinned=bool(pinned),
        folder=folder or "",
        model=model,
        system=system,
        settings=from_json(settings),
        draft=draft,
    )


def _key(id: int | None) -> str | None:
    return None if id is None else str(id)


def put_in(connection: sqlite3.Connection, chat: PortableChat, pictures: Mapping[str, Attachment]) -> bool:
    """Add a chat with all its branches: False where it is there already, if only in the trash.

    `pictures` are by their digests; one that is not among them is left out.
    """
    if connection.execute("SELECT 1 FROM chats WHERE uid = ?", (clean(chat.uid),)).fetchone():
        return False
    folder = folder_named(connection, chat.folder) if clean(chat.folder).strip() else None
    id = connection.execute(
        "INSERT INTO chats (uid, made, changed, pinned, folder, title, model, settings, system, draft)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            clean(chat.uid),
            chat.made,
            chat.changed,
            int(chat.pinned),
            folder,
            clean(chat.title),
            clean(chat.model),
            as_json(chat.settings),
            clean(chat.system),
            clean(chat.draft),
        ),
    ).lastrowid
    ids: dict[str, int] = {}
    for message in chat.messages:
        ids[message.key] = _put_message(connection, int(id or 0), message, ids, pictures)
    choices = [(ids[each.chosen], ids[each.key]) for each in chat.messages if each.chosen in ids]
    connection.executemany("UPDATE messages SET chosen = ? WHERE id = ?", choices)
    connection.execute("UPDATE chats SET chosen = ? WHERE id = ?", (ids.get(chat.chosen or ""), id))
    return True


def _put_message(
    connection: sqlite3.Connection,
    chat: int,
    message: PortableMessage,
    ids: Mapping[str, int],
    pictures: Mapping[str, Attachment],
) -> int:
    took = message.timing
    calls = json.dumps([[call.name, call.arguments] for call in message.calls])
    row = connection.execute(
        "INSERT INTO messages (chat, parent, role, state, made, model, reason, tokens, tok_s, first_token_s,"
        " prompt_tokens, cached_tokens, reasoning_s, sentence, calls, reasoning, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            chat,
            None if message.parent is None else ids[message.parent],
            message.role,
            message.state,
            message.made,
            clean(message.model),
            message.reason,
            *(took.tokens, took.tok_s, took.first_token_s),
            *(took.prompt_tokens, took.cached_tokens, took.reasoning_s),
            clean(message.sentence),
            calls,
            clean(message.reasoning),
            clean(message.text),
        ),
    )
    id = int(row.lastrowid or 0)
    attach_to(connection, id, pack(_named(message.pictures, pictures)))
    return id


def _named(shown: Sequence[Picture], pictures: Mapping[str, Attachment]) -> list[Attachment]:
    """With the names that the message has for them."""
    found = []
    for each in shown:
        if (known := pictures.get(each.digest)) is not None:
            found.append(replace(known, image=replace(known.image, name=each.name)))
    return found
