"""Connections to the chats and what is done within one transaction.

Each thread has a connection of its own. In WAL mode readers never wait for the writer, so the window's thread reads at
once whatever another thread writes; and what a call wrote is on disk when it returns, which a queue in front of one
writing thread could not say. Writers take turns by SQLite's own lock, in this program and among several.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from app.chats.errors import ChatsDamagedError, ChatsError, ChatsReadOnlyError, told

BUSY_MS: Final = 10_000
"""So long does a writer wait for its turn."""
WAL_BYTES: Final = 32 << 20
"""What the log is cut back to when a large import is over."""

Mode = Literal["disk", "read-only", "memory"]


def connect(path: Path | str, mode: Mode = "disk", extra: str = "") -> sqlite3.Connection:
    """Raises sqlite3.Error. `extra` is added to the URI."""
    target = str(path)
    if mode == "memory":
        target = ":memory:"
    elif mode == "read-only":
        target = f"{Path(path).absolute().as_uri()}?mode=ro{extra}"
    connection = sqlite3.connect(
        target, uri=mode == "read-only", isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if mode == "disk":
            if not os.path.getsize(path):  # later, it would be a write, which waits for other writers
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            connection.execute("PRAGMA synchronous = NORMAL")
            # On macOS, `fsync` alone leaves what was written in the drive's own memory.
            connection.execute("PRAGMA fullfsync = ON")
        elif mode == "read-only":
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


class Database:
    """`refusal` is raised for every write, where there is one. With mode "memory", `memory` is the one connection.
    `on_damage` is called where the file turns out to be damaged."""

    def __init__(
        self,
        path: Path,
        owner: str,
        mode: Mode = "disk",
        memory: sqlite3.Connection | None = None,
        refusal: ChatsReadOnlyError | None = None,
        on_damage: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.owner = owner
        self.mode: Mode = mode
        self._memory = memory
        self._refusal = refusal
        self._on_damage = on_damage
        self._lock = threading.RLock()
        self._connections: dict[int, tuple[threading.Thread, sqlite3.Connection]] = {}
        self._durable: dict[sqlite3.Connection, bool] = {}
        self._seen: dict[sqlite3.Connection, tuple[int, int]] = {}
        self._closed = False

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """What is read within is of one moment. Raises ChatsError."""
        with self._turn() as connection, self._told():
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def write(self, durable: bool = False, counted: bool = True) -> Iterator[sqlite3.Connection]:
        """All of what is written within, or nothing. Raises ChatsError.

        `durable`: it outlasts a loss of power from here on, else only the end of the program. Other windows are told
        of what is `counted`.
        """
        if self._refusal is not None:
            raise self._refusal
        with self._turn() as connection, self._told():
            self._sync(connection, durable)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if counted:
                    connection.execute(
                        "INSERT INTO writers VALUES (?, 1) ON CONFLICT (owner) DO UPDATE SET writes = writes + 1",
                        (self.owner,),
                    )
                connection.execute("COMMIT")
            finally:
                _roll_back(connection)

    def changed_elsewhere(self) -> bool:
        """Whether another window wrote since this thread asked last; False at first. The checkpoints of a reply do not
        count. Cheap enough to ask each second. Raises ChatsError."""
        with self._turn() as connection, self._told():
            version = int(connection.execute("PRAGMA data_version").fetchone()[0])
            seen = self._seen.get(connection)
            if seen is not None and seen[0] == version:
                return False
            writes = int(
                connection.execute(
                    "SELECT coalesce(sum(writes), 0) FROM writers WHERE owner <> ?", (self.owner,)
                ).fetchone()[0]
            )
            self._seen[connection] = version, writes
            return seen is not None and seen[1] != writes

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """The thread's connection, outside of any transaction, for what makes its own."""
        if self._refusal is not None:
            raise self._refusal
        with self._turn() as connection, self._told():
            yield connection

    def shrink(self) -> None:
        """Give the disk back what deleting made free. Raises ChatsError."""
        with self._turn() as connection, self._told():
            connection.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """For all threads. The last one to close puts the log into the file."""
        with self._lock:
            self._closed = True
            connections = [connection for _, connection in self._connections.values()]
            if self._memory is not None:
                connections.append(self._memory)
            self._connections.clear()
            for connection in connections:
                connection.close()

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        if self._memory is None:
            yield self._connection()
            return
        with self._lock:
            self._check_open()
            yield self._memory

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            with told(str(self.path)):
                yield
        except ChatsDamagedError:
            if self._on_damage is not None:
                self._on_damage()
            raise

    def _connection(self) -> sqlite3.Connection:
        with self._lock:
            self._check_open()
            thread = threading.current_thread()
            known = self._connections.get(threading.get_ident())
            if known is not None:
                return known[1]
            for ident, (other, connection) in list(self._connections.items()):
                if not other.is_alive():
                    self._forget(ident, connection)
        with self._told():
            connection = connect(self.path, self.mode)
        with self._lock:
            if self._closed:
                connection.close()
                self._check_open()
            self._connections[threading.get_ident()] = thread, connection
        return connection

    def _forget(self, ident: int, connection: sqlite3.Connection) -> None:
        del self._connections[ident]
        self._durable.pop(connection, None)
        self._seen.pop(connection, None)
        connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ChatsError("The chats are closed. Start Millstream again.")

    def _sync(self, connection: sqlite3.Connection, durable: bool) -> None:
        """In WAL mode, NORMAL leaves a commit to the system, and FULL waits for the disk (sqlite.org/pragma.html)."""
        if self.mode == "disk" and self._durable.get(connection, False) != durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable[connection] = durable


def _roll_back(connection: sqlite3.Connection) -> None:
    """Where a transaction is still open: some errors end it by themselves."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def make_file(path: Path) -> None:
    """Where there is none, one that other people cannot read; those beside it follow suit. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def siblings_of(path: Path) -> tuple[Path, ...]:
    """The file and those that SQLite keeps beside it, as far as they are there."""
    return tuple(
        beside for end in ("", "-wal", "-shm") if os.path.lexists(beside := path.with_name(f"{path.name}{end}"))
    )
