"""Chats and their folders: listed, named, moved, thrown away and taken back."""

from __future__ import annotations

import json
import sqlite3
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final

from app.chats.database import Database
from app.chats.errors import ChatsError, missing
from app.chats.records import Chat, ChatLine, Folder, clean, moment

PAGE: Final = 100
_LINE: Final = "id, title, made, changed, pinned, folder, deleted_at"


class Chats:
    """Every method raises ChatsError; ChatMissingError where the chat or folder is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        title: str = "",
        model: str = "",
        system: str = "",
        settings: Mapping[str, object] | None = None,
        folder: int | None = None,
    ) -> int:
        now = time.time()
        with self._database.write() as connection:
            row = connection.execute(
                "INSERT INTO chats (uid, made, changed, folder, title, model, settings, system)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    uuid.uuid4().hex,
                    now,
                    now,
                    folder,
                    clean(title),
                    clean(model),
                    as_json(settings or {}),
                    clean(system),
                ),
            )
            return int(row.lastrowid or 0)

    def get(self, chat: int) -> Chat:
        with self._database.read() as connection:
            row = connection.execute(
                f"SELECT {_LINE}, uid, model, system, settings, draft FROM chats WHERE id = ?", (chat,)
            ).fetchone()
        if row is None:
            raise missing()
        *line, uid, model, system, settings, draft = row
        return Chat(*_fields(line), uid, model, system, from_json(settings), draft)

    def pinned(self) -> list[ChatLine]:
        """Those that are pinned, in whichever folder, the last changed first."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_LINE} FROM chats WHERE deleted_at IS NULL AND pinned = 1 ORDER BY changed DESC, id DESC"
            )
            return [_line(row) for row in rows]

    def page(self, folder: int | None = None, after: ChatLine | None = None, limit: int = PAGE) -> list[ChatLine]:
        """At most `limit` chats that are not pinned, the last changed first: of all, or of one folder.

        `after` is the last one of the page before, and None for the first page.
        """
        where = "deleted_at IS NULL AND pinned = 0"
        values: list[object] = []
        if folder is not None:
            where, values = f"folder = ? AND {where}", [folder]
        return self._page(where, values, "changed", after, limit)

    def trash(self, after: ChatLine | None = None, limit: int = PAGE) -> list[ChatLine]:
        """What was thrown away, the last first."""
        return self._page("deleted_at IS NOT NULL", [], "deleted_at", after, limit)

    def _page(self, where: str, values: list[object], key: str, after: ChatLine | None, limit: int) -> list[ChatLine]:
        if after is not None:
            where += f" AND ({key}, id) < (?, ?)"
            values = [*values, getattr(after, key), after.id]
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT {_LINE} FROM chats WHERE {where} ORDER BY {key} DESC, id DESC LIMIT ?", (*values, limit)
            )
            return [_line(row) for row in rows]

    def rename(self, chat: int, title: str) -> None:
        self._set(chat, "title", clean(title))

    def pin(self, chat: int, pinned: bool = True) -> None:
        self._set(chat, "pinned", int(pinned))

    def move(self, chat: int, folder: int | None) -> None:
        """Into a folder, or out of its own."""
        self._set(chat, "folder", folder)

    def set_model(self, chat: int, model: str) -> None:
        self._set(chat, "model", clean(model))

    def set_system(self, chat: int, system: str) -> None:
        self._set(chat, "system", clean(system))

    def set_settings(self, chat: int, settings: Mapping[str, object]) -> None:
        """`settings` is kept as JSON."""
        self._set(chat, "settings", as_json(settings))

    def set_draft(self, chat: int, draft: str) -> None:
        """What is written and not sent. Other windows are not told."""
        self._set(chat, "draft", clean(draft), counted=False)

    def throw_away(self, chat: int) -> None:
        """Into the trash, from which `restore` takes it back. A reply under way goes on."""
        self._set(chat, "deleted_at", time.time())

    def restore(self, chat: int) -> None:
        self._set(chat, "deleted_at", None)

    def purge(self, chat: int) -> None:
        """Delete a chat of the trash for good, and the pictures that no other has."""
        with self._database.write() as connection:
            done = connection.execute("DELETE FROM chats WHERE id = ? AND deleted_at IS NOT NULL", (chat,))
            _one(done)
        self._database.shrink()

    def empty_trash(self) -> int:
        """Delete all of the trash for good: → how many chats."""
        with self._database.write() as connection:
            count = connection.execute("DELETE FROM chats WHERE deleted_at IS NOT NULL").rowcount
        self._database.shrink()
        return count

    def folders(self) -> list[Folder]:
        """By their names."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT id, name, (SELECT count(*) FROM chats WHERE folder = folders.id AND deleted_at IS NULL)"
                " FROM folders ORDER BY name COLLATE NOCASE, id"
            )
            return [Folder(*row) for row in rows]

    def add_folder(self, name: str) -> int:
        """→ the one of this name that is there already, or a new one."""
        with self._database.write() as connection:
            return folder_named(connection, name)

    def rename_folder(self, folder: int, name: str) -> None:
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM folders WHERE name = ? AND id <> ?", (_name(name), folder)).fetchone():
                raise ChatsError(f"There is a folder {_name(name)} already. Choose another name.")
            _one(connection.execute("UPDATE folders SET name = ? WHERE id = ?", (_name(name), folder)))

    def remove_folder(self, folder: int) -> None:
        """The chats in it stay, in no folder."""
        with self._database.write() as connection:
            _one(connection.execute("DELETE FROM folders WHERE id = ?", (folder,)))

    def _set(self, chat: int, column: str, value: str | float | None, counted: bool = True) -> None:
        with self._database.write(counted=counted) as connection:
            _one(connection.execute(f"UPDATE chats SET {column} = ? WHERE id = ?", (value, chat)))


def by_day(lines: Iterable[ChatLine]) -> list[tuple[date, list[ChatLine]]]:
    """Chats in the order of `Chats.page`, grouped by the day of the last change, in this machine's time zone."""
    days: list[tuple[date, list[ChatLine]]] = []
    for line in lines:
        day = moment(line.changed).date()
        if not days or days[-1][0] != day:
            days.append((day, []))
        days[-1][1].append(line)
    return days


def folder_named(connection: sqlite3.Connection, name: str) -> int:
    connection.execute("INSERT OR IGNORE INTO folders (name) VALUES (?)", (_name(name),))
    return int(connection.execute("SELECT id FROM folders WHERE name = ?", (_name(name),)).fetchone()[0])


def as_json(value: Mapping[str, object]) -> str:
    return json.dumps(dict(value), ensure_ascii=True)


def from_json(text: str) -> dict[str, object]:
    """An object of JSON; an empty one where the text is none: settings must not keep a chat from being opened."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _name(name: str) -> str:
    name = " ".join(clean(name).split())
    if not name:
        raise ChatsError("A folder needs a name. Write one.")
    return name


def _fields(row: list[object]) -> tuple[int, str, float, float, bool, int | None, float | None]:
    id, title, made, changed, pinned, folder, deleted_at = row
    return id, title, made, changed, bool(pinned), folder, deleted_at  # type: ignore[return-value]


def _line(row: tuple[object, ...]) -> ChatLine:
    return ChatLine(*_fields(list(row)))


def _one(cursor: sqlite3.Cursor) -> None:
    if cursor.rowcount != 1:
        raise missing()
