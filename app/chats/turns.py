"""The messages of a chat: a tree, whose chosen path is what is shown and what the model is told.

Each message names the one before it, and which of those after it was chosen last; a chat names its first. Where the
chosen one was deleted, or none was chosen, the newest takes its place. So a deletion is only a mark, the same for all
that it took: taken away, all is as it was.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Final, Literal

from app.attachment import Attachment
from app.chats.database import Database
from app.chats.errors import missing
from app.chats.pictures import attach_to, of_messages, pack
from app.chats.records import Begun, State, Timing, Turn, clean
from engine.types import FinishReason, Role, ToolCall

UNDO_S: Final = 86_400.0
"""A message that was deleted longer ago is deleted for good at a start."""

_TIMING: Final = "tokens, tok_s, first_token_s, prompt_tokens, cached_tokens, reasoning_s"

_PATH: Final = f"""
WITH RECURSIVE path (id, depth) AS (
    SELECT coalesce(
        (SELECT id FROM messages WHERE id = chats.chosen AND chat = :chat AND parent IS NULL AND deleted_at IS NULL),
        (SELECT max(id) FROM messages WHERE chat = :chat AND parent IS NULL AND deleted_at IS NULL)), 0
    FROM chats WHERE chats.id = :chat
    UNION ALL
    SELECT coalesce(
        (SELECT id FROM messages WHERE id = above.chosen AND parent = above.id AND deleted_at IS NULL),
        (SELECT max(id) FROM messages WHERE chat = :chat AND parent = above.id AND deleted_at IS NULL)), depth + 1
    FROM path JOIN messages AS above ON above.id = path.id)
SELECT m.id, m.chat, m.parent, role, state, sentence, model, made, reason, {_TIMING}, calls, reasoning, text,
    (SELECT count(*) FROM messages AS s WHERE s.chat = m.chat AND s.parent IS m.parent AND s.deleted_at IS NULL
     AND s.id <= m.id),
    (SELECT count(*) FROM messages AS s WHERE s.chat = m.chat AND s.parent IS m.parent AND s.deleted_at IS NULL)
FROM path JOIN messages AS m ON m.id = path.id ORDER BY depth"""


class Turns:
    """Every method raises ChatsError; ChatMissingError where the chat or message is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def path(self, chat: int) -> list[Turn]:
        """What is shown of a chat, from its first message on."""
        with self._database.read() as connection:
            if connection.execute("SELECT 1 FROM chats WHERE id = ?", (chat,)).fetchone() is None:
                raise missing()
            rows = connection.execute(_PATH, {"chat": chat}).fetchall()
            pictures = of_messages(connection, "message IN (SELECT id FROM messages WHERE chat = ?)", (chat,))
        return [_turn(row, tuple(pictures.get(row[0], ()))) for row in rows]

    def begin(
        self, chat: int, prompt: str, parent: int | None, pictures: Sequence[Attachment] = (), model: str = ""
    ) -> Begun:
        """Keep what is sent, and an empty reply to it, before the model is asked. The chat's draft is empty then.

        It outlasts a loss of power, so it waits for the disk: not for the window's thread. `parent` is the message that
        the prompt follows, None for the first. To edit a message and send it again, give its own parent: a branch
        begins there, which is shown.
        """
        packed = pack(pictures)
        with self._database.write(durable=True) as connection:
            asked = self._insert(connection, chat, parent, "user", "done", text=prompt)
            attach_to(connection, asked, packed)
            reply = self._insert(connection, chat, asked, "assistant", "under way", model=model)
            connection.execute("UPDATE chats SET draft = '' WHERE id = ?", (chat,))
        return Begun(asked, reply)

    def answer(self, message: int, model: str = "") -> int:
        """Begin another reply to a message, beside those that there are: → the reply. For a reply made anew give the
        prompt, and for one after the results of tools the last of them. As durable as `begin`."""
        with self._database.write(durable=True) as connection:
            chat = self._of(connection, message)[0]
            return self._insert(connection, chat, message, "assistant", "under way", model=model)

    def add(self, chat: int, parent: int | None, role: Role, text: str) -> int:
        """A message that is whole at once, such as the result of a tool."""
        with self._database.write() as connection:
            return self._insert(connection, chat, parent, role, "done", text=text)

    def checkpoint(self, reply: int, text: str, reasoning: str = "") -> None:
        """Keep all that came so far of a reply; once a second while it comes. Other windows are not told."""
        with self._database.write(counted=False) as connection:
            done = connection.execute(
                "UPDATE messages SET text = ?, reasoning = ? WHERE id = ? AND state = 'under way'",
                (clean(text), clean(reasoning), reply),
            )
            if done.rowcount != 1:
                raise missing()

    def finish(
        self,
        reply: int,
        text: str,
        reasoning: str = "",
        state: Literal["done", "stopped", "failed"] = "done",
        sentence: str = "",
        timing: Timing | None = None,
        reason: FinishReason | None = None,
        calls: Sequence[ToolCall] = (),
    ) -> None:
        """Keep a reply that is over. `sentence` says why it failed. May be called again, with more."""
        took = timing or Timing()
        written = json.dumps([[call.name, call.arguments] for call in calls])
        with self._database.write(durable=True) as connection:
            chat = self._of(connection, reply)[0]
            connection.execute(
                "UPDATE messages SET text = ?, reasoning = ?, state = ?, sentence = ?, reason = ?, calls = ?,"
                f" owner = '', ({_TIMING}) = (?, ?, ?, ?, ?, ?) WHERE id = ?",
                (
                    *(clean(text), clean(reasoning), state, clean(sentence), reason, written),
                    *(took.tokens, took.tok_s, took.first_token_s),
                    *(took.prompt_tokens, took.cached_tokens, took.reasoning_s, reply),
                ),
            )
            connection.execute("UPDATE chats SET changed = max(changed, ?) WHERE id = ?", (time.time(), chat))

    def timings(self, limit: int = 50) -> list[tuple[float, str, Timing]]:
        """The last replies that were timed, the newest first: when, by which model, and what they took."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT made, model, {_TIMING} FROM messages WHERE tok_s IS NOT NULL ORDER BY id DESC LIMIT ?",
                (limit,),
            )
            return [(made, model, Timing(*took)) for made, model, *took in rows]

    def siblings(self, message: int) -> list[int]:
        """The versions of a message, itself among them, in the order in which they were made."""
        with self._database.read() as connection:
            chat, parent = self._of(connection, message)
            rows = connection.execute(
                "SELECT id FROM messages WHERE chat = ? AND parent IS ? AND deleted_at IS NULL ORDER BY id",
                (chat, parent),
            )
            return [row[0] for row in rows]

    def choose(self, message: int) -> None:
        """Have this version be on the path of its chat; what follows it is what was chosen there last."""
        with self._database.write() as connection:
            self._choose(connection, *self._of(connection, message), message)

    def show(self, message: int) -> None:
        """The same for all before it too, so that the message is shown from wherever in the tree it is."""
        with self._database.write() as connection:
            chat, parent = self._of(connection, message)
            self._choose(connection, chat, parent, message)
            while parent is not None:
                message, (_, parent) = parent, self._of(connection, parent)
                self._choose(connection, chat, parent, message)

    def delete(self, message: int) -> None:
        """Take a message from its chat, with all that follows it, until `restore`."""
        with self._database.write() as connection:
            self._of(connection, message)
            self._mark(connection, message, None, time.time())

    def restore(self, message: int) -> None:
        """Undo `delete`: what was shown is shown again. What was deleted before that by itself stays so."""
        with self._database.write() as connection:
            self._of(connection, message)
            (when,) = connection.execute("SELECT deleted_at FROM messages WHERE id = ?", (message,)).fetchone()
            self._mark(connection, message, when, None)

    def purge(self, before: float | None = None) -> int:
        """Delete for good what was deleted before this time, in seconds since 1970, or all: → how many messages."""
        with self._database.write() as connection:
            count = connection.execute(
                "DELETE FROM messages WHERE id IN ("
                " WITH RECURSIVE lost (chat, id) AS (SELECT chat, id FROM messages WHERE deleted_at < ?"
                " UNION SELECT m.chat, m.id FROM lost JOIN messages AS m ON m.chat = lost.chat AND m.parent = lost.id)"
                " SELECT id FROM lost)",
                (float("inf") if before is None else before,),
            ).rowcount
        if count:
            self._database.shrink()
        return count

    def _mark(self, connection: sqlite3.Connection, message: int, old: float | None, new: float | None) -> None:
        """Of a message and what follows it, those that bear the old mark: so nothing below a deletion is found."""
        connection.execute(
            "UPDATE messages SET deleted_at = ? WHERE deleted_at IS ? AND id IN ("
            " WITH RECURSIVE below (chat, id) AS (SELECT chat, id FROM messages WHERE id = ?"
            " UNION SELECT m.chat, m.id FROM below JOIN messages AS m ON m.chat = below.chat AND m.parent = below.id)"
            " SELECT id FROM below)",
            (new, old, message),
        )

    def _insert(
        self,
        connection: sqlite3.Connection,
        chat: int,
        parent: int | None,
        role: Role,
        state: State,
        text: str = "",
        model: str = "",
    ) -> int:
        now = time.time()
        owner = self._database.owner if state == "under way" else ""
        row = connection.execute(
            "INSERT INTO messages (chat, parent, role, state, owner, made, model, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (chat, parent, role, state, owner, now, clean(model), clean(text)),
        )
        message = int(row.lastrowid or 0)
        self._choose(connection, chat, parent, message)
        connection.execute("UPDATE chats SET changed = max(changed, ?) WHERE id = ?", (now, chat))
        return message

    def _choose(self, connection: sqlite3.Connection, chat: int, parent: int | None, message: int) -> None:
        if parent is None:
            connection.execute("UPDATE chats SET chosen = ? WHERE id = ?", (message, chat))
        else:
            connection.execute("UPDATE messages SET chosen = ? WHERE id = ?", (message, parent))

    def _of(self, connection: sqlite3.Connection, message: int) -> tuple[int, int | None]:
        """→ its chat and its parent."""
        row = connection.execute("SELECT chat, parent FROM messages WHERE id = ?", (message,)).fetchone()
        if row is None:
            raise missing()
        return row[0], row[1]


def end_abandoned(connection: sqlite3.Connection, living: Sequence[str], sentence: str) -> int:
    """Mark the replies whose programs are no more as stopped: → how many."""
    return connection.execute(
        "UPDATE messages SET state = 'stopped', sentence = ?, owner = '' WHERE state = 'under way'"
        f" AND owner NOT IN ({', '.join('?' * len(living))})",
        (sentence, *living),
    ).rowcount


def as_calls(text: str) -> tuple[ToolCall, ...]:
    try:
        return tuple(ToolCall(str(name), str(arguments)) for name, arguments in json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return ()


def _turn(row: tuple[object, ...], pictures: tuple[object, ...]) -> Turn:
    fields = (*row[:9], Timing(*row[9:15]), as_calls(str(row[15])), *row[16:], pictures)  # type: ignore[arg-type]
    return Turn(*fields)  # type: ignore[arg-type]
