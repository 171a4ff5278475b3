"""Opening the chats: whole, mended, only for reading, or in memory where the disk refuses, and saying which."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.chats.database import Database, connect, make_file
from app.chats.errors import ChatsDamagedError, ChatsStorageError, ChatsVersionError, from_os, told
from app.chats.owners import Owners
from app.chats.salvage import copy_all, finish, index_is_sound, is_damage, is_sound, open_source, salvage
from app.chats.schema import TABLES, VERSION, ensure_index, migrate, version
from app.chats.turns import UNDO_S, Turns, end_abandoned

ALWAYS_CHECKED: Final = 64 << 20
"""Bytes: a file up to this size is read through at every start, a larger one after a crash."""
CUT_OFF: Final = "Millstream ended while this reply was being written. What had come by then is here."


@dataclass(frozen=True)
class Opened:
    """`notices` are sentences that the person should read. `cut_off` replies were mended."""

    database: Database
    owners: Owners | None
    notices: tuple[str, ...]
    cut_off: int


def open_database(path: Path) -> Opened:
    """Raises ChatsError where the chats can be had in no way."""
    owners = Owners(path)
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise from_os(error, str(path.parent)) from error
        with owners.gate():
            return _open(path, owners)
    except ChatsVersionError:
        raise
    except ChatsStorageError as error:
        return _in_memory(path, error)


def _open(path: Path, owners: Owners) -> Opened:
    """Within the gate. Where it does not come to its end, by an error or a kill, the next start checks the file."""
    owners.enter()
    dead: set[str] = set()
    try:
        living, dead = owners.others()
        return _mended(path, owners, living, crashed=bool(dead))
    except BaseException as error:
        owners.leave()
        if dead or isinstance(error, ChatsDamagedError):
            owners.suspect()
        raise


def _mended(path: Path, owners: Owners, living: set[str], crashed: bool) -> Opened:
    notices: list[str] = []
    try:
        finish(path)
    except OSError as error:
        raise from_os(error, str(path)) from error
    if _is_damaged(path, crashed):
        if living:
            raise ChatsDamagedError(
                f"The chats in {path} are damaged, and another window has them open. Close it, and start Millstream "
                "again: it saves what can be read, and deletes nothing."
            )
        notices.append(salvage(path).sentence)
    try:
        make_file(path)
    except OSError as error:
        raise from_os(error, str(path)) from error
    with told(str(path)), closing(connect(path)) as connection:
        if version(connection) > VERSION:
            return _newer(path, owners, connection)
        migrate(connection)
        ensure_index(connection)
        if crashed and not index_is_sound(connection):
            ensure_index(connection, anew=True)
        connection.execute("BEGIN IMMEDIATE")
        cut_off = end_abandoned(connection, sorted(living), CUT_OFF)
        connection.execute(
            f"DELETE FROM writers WHERE owner NOT IN ({', '.join('?' * len(living))})", tuple(sorted(living))
        )
        connection.execute("COMMIT")
    database = Database(path, owners.token, on_damage=owners.suspect)
    try:
        Turns(database).purge(time.time() - UNDO_S)
    except BaseException:
        database.close()
        raise
    return Opened(database, owners, tuple(notices), cut_off)


def _is_damaged(path: Path, crashed: bool) -> bool:
    """Small files are read through, as large ones are after a crash; of others, the beginning."""
    if not path.exists():
        return False
    with told(str(path)):
        try:
            with closing(connect(path)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return (crashed or path.stat().st_size <= ALWAYS_CHECKED) and not is_sound(connection)
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                return True
            raise


def _newer(path: Path, owners: Owners, connection: sqlite3.Connection) -> Opened:
    """A file of a newer version is shown where its tables still hold all that this version reads."""
    refusal = ChatsVersionError(
        f"A newer Millstream wrote the chats in {path}. This one shows them and cannot change them: update it to go on."
    )
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as ours:
        migrate(ours)
        for table in TABLES:
            columns = ", ".join(row[1] for row in ours.execute(f"PRAGMA table_info({table})"))
            try:
                connection.execute(f"SELECT {columns} FROM {table} LIMIT 0")
            except sqlite3.OperationalError:
                raise ChatsVersionError(
                    f"A newer Millstream wrote the chats in {path}, in a way that this one cannot read. Update it to "
                    "see them."
                ) from None
    database = Database(path, owners.token, "read-only", refusal=refusal)
    return Opened(database, owners, (str(refusal),), 0)


def _in_memory(path: Path, reason: ChatsStorageError) -> Opened:
    """Where the disk takes nothing, the program still works, with a copy of what the disk has."""
    memory = connect(path, "memory")
    migrate(memory)
    if path.exists():
        with suppress(sqlite3.DatabaseError), _readable(path) as source:
            copy_all(source, memory)
    ensure_index(memory)
    end_abandoned(memory, (), CUT_OFF)
    notice = f"{reason} Until then, new messages are kept in memory, and are gone when Millstream ends."
    return Opened(Database(path, "", "memory", memory), None, (notice,), 0)


@contextmanager
def _readable(path: Path) -> Iterator[sqlite3.Connection]:
    """A store that may only be read. With its log, which SQLite cannot read where it can write nothing beside it, it
    is copied to where it can."""
    log = path.with_name(f"{path.name}-wal")
    with ExitStack() as stack:
        with suppress(OSError):
            if log.exists() and log.stat().st_size:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                for file in (path, log):
                    shutil.copyfile(file, folder / file.name)
                path = folder / path.name
        yield stack.enter_context(closing(open_source(path)))
