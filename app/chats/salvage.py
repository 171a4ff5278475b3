"""A damaged file: whether it is one, and what of it can still be read. Nothing of it is deleted."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.chats.database import connect, make_file, siblings_of
from app.chats.errors import ChatsStorageError, as_chats_error, from_os
from app.chats.schema import TABLES, ensure_index, migrate
from registry.saved import sync_folder

RECOVERED: Final = "Recovered chat"
ONE_BY_ONE: Final = 4096
"""So many ids are tried each by itself behind a damaged place, before larger and larger steps are taken."""
LARGEST_ID: Final = 2**63 - 1
_KINDS: Final[dict[str, tuple[type, ...]]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}


@dataclass(frozen=True)
class Salvaged:
    """Where the damaged file is now, and how much of it was read."""

    aside: Path
    chats: int
    messages: int

    @property
    def sentence(self) -> str:
        found = "nothing in it could be read"
        if self.chats:
            found = f"{self.messages} messages of {self.chats} chats could be read, and are here"
        return f"The file of the chats was damaged: {found}. It is kept as {self.aside.name}, in the same folder."


def is_sound(connection: sqlite3.Connection) -> bool:
    """Whether every page of the file is as it should be. Reads all of it. Raises sqlite3.Error where the disk fails."""
    try:
        return [row[0] for row in connection.execute("PRAGMA quick_check(1)")] == ["ok"]
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return (code & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def index_is_sound(connection: sqlite3.Connection) -> bool:
    """Whether the index of words answers to the texts."""
    try:
        for index in ("message_index", "title_index"):
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def salvage(path: Path) -> Salvaged:
    """Set the file aside under its date, and have a new one with what can be read. No program may have it open.

    Raises ChatsStorageError; then the file is where it was.
    """
    new = _new(path)
    aside = _free_name(path)
    try:
        for left in siblings_of(new):
            left.unlink()
        make_file(new)
        counts = _copy(path, new)
        # The log first: beside a new file, SQLite would take it for that one's.
        for beside in reversed(siblings_of(path)):
            os.replace(beside, aside.with_name(aside.name + beside.name[len(path.name) :]))
        os.replace(new, path)
        sync_folder(path.parent)
    except OSError as error:
        raise from_os(error, str(path)) from error
    return Salvaged(aside, *counts)


def finish(path: Path) -> None:
    """Where `salvage` was cut off between setting the old file aside and the new one taking its place, go on.

    Raises OSError.
    """
    if not os.path.lexists(path) and _new(path).exists():
        os.replace(_new(path), path)


def _new(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y-%m-%d %H.%M.%S")
    name = f"{path.stem} damaged {stamp}"
    number = 1
    while os.path.lexists(path.with_name(f"{name}{path.suffix}")):
        number += 1
        name = f"{path.stem} damaged {stamp} ({number})"
    return path.with_name(f"{name}{path.suffix}")


def _copy(path: Path, new: Path) -> tuple[int, int]:
    """→ how many chats and messages. The new file has no log when this returns."""
    try:
        with closing(connect(new)) as target:
            migrate(target)
            # A file whose first page is lost tells nothing.
            with suppress(sqlite3.DatabaseError), closing(open_source(path)) as source:
                copy_all(source, target)
            ensure_index(target)
            target.execute("PRAGMA synchronous = FULL")
            target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return (
                int(target.execute("SELECT count(*) FROM chats").fetchone()[0]),
                int(target.execute("SELECT count(*) FROM messages").fetchone()[0]),
            )
    except sqlite3.Error as error:
        told = as_chats_error(error, str(path))
        raise told if isinstance(told, ChatsStorageError) else ChatsStorageError(str(told)) from error


def copy_all(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Copy what can be read of one store into an empty one of this version, which has no index yet.

    Raises sqlite3.Error where the target cannot be written.
    """
    target.execute("PRAGMA foreign_keys = OFF")
    target.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        _copy_table(source, target, table)
    _mend(target)
    target.execute("COMMIT")
    target.execute("PRAGMA foreign_keys = ON")


def open_source(path: Path) -> sqlite3.Connection:
    """Read-only: nothing in the damaged file changes. Without its log where the log is what cannot be read."""
    source = connect(path, "read-only")
    try:
        # With it, SQLite opens a file that is shorter than it ought to be.
        source.execute("PRAGMA writable_schema = ON")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        source.close()
        source = connect(path, "read-only", "&immutable=1")
        source.execute("PRAGMA writable_schema = ON")
    return source


def _copy_table(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> None:
    try:
        theirs = {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    except sqlite3.DatabaseError:
        return
    kinds = {row[1]: row[2] for row in target.execute(f"PRAGMA table_info({table})") if row[1] in theirs}
    columns = list(kinds)
    if not columns:
        return
    insert = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for row in _rows(source, table, columns):
        # A row that does not keep to the rules of its table is as lost as one that cannot be read.
        if all(
            value is None or isinstance(value, _KINDS[kinds[name]]) for name, value in zip(columns, row, strict=True)
        ):
            with suppress(sqlite3.IntegrityError):
                target.execute(insert, row)


def _rows(source: sqlite3.Connection, table: str, columns: list[str]) -> Iterator[tuple[object, ...]]:
    """All that can be read of a table, past any damaged places."""
    if table == "attached":  # it has no row ids, and is small
        with suppress(sqlite3.DatabaseError):
            yield from source.execute(f"SELECT {', '.join(columns)} FROM {table}")
        return
    select = f"SELECT rowid, {', '.join(columns)} FROM {table} WHERE rowid > ? ORDER BY rowid"
    last, step, tried = -1, 1, 0
    while last < LARGEST_ID:
        try:
            for row in source.execute(select, (last,)):
                last, step, tried = row[0], 1, 0
                yield row[1:]
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            tried += 1
            step = step if tried < ONE_BY_ONE else step * 2
            last = min(last + step, LARGEST_ID)


def _mend(target: sqlite3.Connection) -> None:
    """Have what was read hang together: a message without its chat gets one, and one without the message before it
    follows the last that is there."""
    target.execute(
        "INSERT INTO chats (id, uid, made, changed, title)"
        " SELECT chat, lower(hex(randomblob(16))), min(made), max(made), ?"
        " FROM messages WHERE chat NOT IN (SELECT id FROM chats) GROUP BY chat",
        (RECOVERED,),
    )
    target.execute("UPDATE chats SET folder = NULL WHERE folder NOT IN (SELECT id FROM folders)")
    target.execute(
        "UPDATE messages SET parent = (SELECT max(id) FROM messages AS before WHERE before.chat = messages.chat"
        " AND before.id < messages.id) WHERE parent IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM messages AS above WHERE above.chat = messages.chat AND above.id = parent)"
    )
    target.execute(
        "UPDATE messages SET state = 'stopped', owner = ''"
        " WHERE state NOT IN ('under way', 'done', 'stopped', 'failed')"
    )
    target.execute("UPDATE messages SET role = 'user' WHERE role NOT IN ('system', 'user', 'assistant', 'tool')")
    target.execute(
        "DELETE FROM attached WHERE message NOT IN (SELECT id FROM messages)"
        " OR digest NOT IN (SELECT digest FROM pictures)"
    )
