"""The tables, their versions, and the index of all words.

A message's row has its short fields first: SQLite reads a row from its beginning, and the tree is walked without the
texts. A reply under way is not in the index, for its text is written anew each second; the view `found_texts` says what
is, so that the index can be rebuilt from it (sqlite.org/fts5.html, "External Content Tables").
"""

from __future__ import annotations

import sqlite3
from typing import Final

_FIRST: Final = """
CREATE TABLE folders (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT, uid TEXT NOT NULL UNIQUE, made REAL NOT NULL, changed REAL NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0, folder INTEGER REFERENCES folders (id) ON DELETE SET NULL, chosen INTEGER,
    deleted_at REAL, title TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '',
    settings TEXT NOT NULL DEFAULT '{}', system TEXT NOT NULL DEFAULT '', draft TEXT NOT NULL DEFAULT '');
CREATE INDEX chats_by_change ON chats (deleted_at, pinned, changed DESC, id DESC);
CREATE INDEX chats_by_folder ON chats (folder, deleted_at, pinned, changed DESC, id DESC);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE, parent INTEGER,
    chosen INTEGER, deleted_at REAL, role TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '',
    made REAL NOT NULL, model TEXT NOT NULL DEFAULT '', reason TEXT, tokens INTEGER, tok_s REAL, first_token_s REAL,
    prompt_tokens INTEGER, cached_tokens INTEGER, reasoning_s REAL, sentence TEXT NOT NULL DEFAULT '',
    calls TEXT NOT NULL DEFAULT '[]', reasoning TEXT NOT NULL DEFAULT '', text TEXT NOT NULL DEFAULT '',
    UNIQUE (chat, id),
    FOREIGN KEY (chat, parent) REFERENCES messages (chat, id) DEFERRABLE INITIALLY DEFERRED);
CREATE INDEX messages_by_parent ON messages (chat, parent, deleted_at, id);
CREATE INDEX messages_under_way ON messages (owner) WHERE state = 'under way';
CREATE INDEX messages_deleted ON messages (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE TABLE pictures (
    digest TEXT PRIMARY KEY, width INTEGER NOT NULL, height INTEGER NOT NULL, preview_width INTEGER NOT NULL,
    preview_height INTEGER NOT NULL, preview BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE attached (
    message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES pictures (digest), name TEXT NOT NULL, PRIMARY KEY (message, position))
    WITHOUT ROWID;
CREATE INDEX attached_by_picture ON attached (digest);
CREATE TRIGGER picture_unused AFTER DELETE ON attached
    WHEN NOT EXISTS (SELECT 1 FROM attached WHERE digest = old.digest)
    BEGIN DELETE FROM pictures WHERE digest = old.digest; END;
CREATE TABLE writers (owner TEXT PRIMARY KEY, writes INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIEW found_texts AS SELECT id, text FROM messages WHERE state <> 'under way';
"""

MIGRATIONS: Final[tuple[str, ...]] = (_FIRST,)
"""The statements that lead from each version to the next. What was released is never changed, only added to."""

VERSION: Final = len(MIGRATIONS)

TABLES: Final = ("folders", "chats", "pictures", "messages", "attached")
"""Those that hold what a person made, each after the ones that it refers to."""

_INDEX: Final = """
CREATE VIRTUAL TABLE message_index USING fts5(text, content='found_texts', content_rowid='id', tokenize='{0}');
CREATE VIRTUAL TABLE title_index USING fts5(title, content='chats', content_rowid='id', tokenize='{0}');
CREATE TRIGGER message_found AFTER INSERT ON messages WHEN new.state <> 'under way' BEGIN
    INSERT INTO message_index (rowid, text) VALUES (new.id, new.text); END;
CREATE TRIGGER message_lost AFTER DELETE ON messages WHEN old.state <> 'under way' BEGIN
    INSERT INTO message_index (message_index, rowid, text) VALUES ('delete', old.id, old.text); END;
CREATE TRIGGER message_changed AFTER UPDATE OF text, state ON messages BEGIN
    INSERT INTO message_index (message_index, rowid, text)
        SELECT 'delete', old.id, old.text WHERE old.state <> 'under way';
    INSERT INTO message_index (rowid, text) SELECT new.id, new.text WHERE new.state <> 'under way'; END;
CREATE TRIGGER title_found AFTER INSERT ON chats BEGIN
    INSERT INTO title_index (rowid, title) VALUES (new.id, new.title); END;
CREATE TRIGGER title_lost AFTER DELETE ON chats BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title); END;
CREATE TRIGGER title_changed AFTER UPDATE OF title ON chats BEGIN
    INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.id, old.title);
    INSERT INTO title_index (rowid, title) VALUES (new.id, new.title); END;
"""
_TRIGGERS: Final = ("message_found", "message_lost", "message_changed", "title_found", "title_lost", "title_changed")
_INDEXES: Final = ("message_index", "title_index")


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Lead an older file, or an empty one, to `VERSION`, in one transaction. Raises sqlite3.Error."""
    if version(connection) < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statements in MIGRATIONS[version(connection) :]:
                run(connection, statements)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def best_tokenizer() -> str:
    """`trigram` finds any three signs in a row, in scripts without blanks too; SQLite has it since 3.34."""
    with_it = sqlite3.connect(":memory:")
    try:
        with_it.execute("CREATE VIRTUAL TABLE trial USING fts5(text, tokenize='trigram')")
    except sqlite3.OperationalError:
        return "unicode61"
    finally:
        with_it.close()
    return "trigram"


def tokenizer(connection: sqlite3.Connection) -> str:
    """The one that the index of this file was made with, "" where it has none."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'message_index'").fetchone()
    return "" if found is None else "trigram" if "'trigram'" in found[0] else "unicode61"


def ensure_index(connection: sqlite3.Connection, anew: bool = False) -> None:
    """Have an index of the words, by the best tokenizer that this SQLite has. Raises sqlite3.Error.

    `anew` where the one that is there does not answer to the texts. All of it or nothing is done.
    """
    best = best_tokenizer()
    present = tokenizer(connection)
    if present == best and not anew:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if present:
            for trigger in _TRIGGERS:
                connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            for index in _INDEXES:
                connection.execute(f"DROP TABLE IF EXISTS {index}")
        run(connection, _INDEX.format(best))
        for index in _INDEXES:
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def run(connection: sqlite3.Connection, statements: str) -> None:
    """Run several within the transaction that is open: `executescript` would commit it first."""
    statement = ""
    for piece in statements.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
