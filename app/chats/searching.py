"""Finding words in titles and messages, in any script.

The index knows every three signs in a row (or, by an older SQLite, every word). Shorter words, which are most of those
in Chinese and Japanese, it cannot find: they are looked for in the texts themselves. Every word must be found.
"""

from __future__ import annotations

import re
from typing import Final

from app.chats.database import Database
from app.chats.errors import ChatsDamagedError
from app.chats.records import Hit, Snippet, clean
from app.chats.schema import ensure_index, tokenizer

PAGE: Final = 50
BEFORE: Final = 40
"""Signs of a snippet before the first mark."""
LENGTH: Final = 160
MOST_TERMS: Final = 16
"""Words beyond these are not looked for."""
MOST_MARKS: Final = 32


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, words: str, limit: int = PAGE, offset: int = 0, trash: bool = False) -> list[Hit]:
        """Titles first, then messages of every branch, the newest first, each holding all of the words.

        Words in quotation marks are one, blanks and all. Upper and lower case are the same. `trash`: search the trash
        instead. `Turns.show` leads to a message that is not on the path. Raises ChatsError.
        """
        terms = split(words)
        if not terms:
            return []
        try:
            return self._find(terms, limit, offset, trash)
        except ChatsDamagedError:
            if self._database.mode == "read-only":
                raise
        # The texts may be sound though their index is not.
        self.rebuild()
        return self._find(terms, limit, offset, trash)

    def rebuild(self) -> None:
        """Make the index anew from the texts. Raises ChatsError."""
        with self._database.alone() as connection:
            ensure_index(connection, anew=True)

    def _find(self, terms: list[str], limit: int, offset: int, trash: bool) -> list[Hit]:
        marks = re.compile("|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True)), re.IGNORECASE)
        state = "chats.deleted_at IS NOT NULL" if trash else "chats.deleted_at IS NULL"
        with self._database.read() as connection:
            kind = tokenizer(connection)
            condition, values = _condition("title", "title_index", "chats.id", terms, kind)
            titles = connection.execute(
                f"SELECT id, title, changed FROM chats WHERE {condition} AND {state}"
                " ORDER BY changed DESC, id DESC LIMIT ? OFFSET ?",
                (*values, limit, offset),
            ).fetchall()
            hits = [Hit(id, snippet(title, marks), None, None, made, Snippet("")) for id, title, made in titles]
            if len(hits) == limit:
                return hits
            before = offset + len(hits)
            if offset and not hits:
                count = f"SELECT count(*) FROM chats WHERE {condition} AND {state}"
                before = int(connection.execute(count, values).fetchone()[0])
            condition, values = _condition("text", "message_index", "m.id", terms, kind)
            # The texts are read only of those that are shown.
            rows = connection.execute(
                "SELECT f.chat, f.title, f.id, f.role, f.made, messages.text FROM ("
                " SELECT m.chat, title, m.id, role, m.made FROM messages AS m JOIN chats ON chats.id = m.chat"
                f" WHERE {condition} AND m.deleted_at IS NULL AND state <> 'under way' AND {state}"
                " ORDER BY m.made DESC, m.id DESC LIMIT ? OFFSET ?"
                ") AS f JOIN messages ON messages.id = f.id ORDER BY f.made DESC, f.id DESC",
                (*values, limit - len(hits), max(0, offset - before)),
            )
            for chat, title, id, role, made, text in rows:
                hits.append(Hit(chat, snippet(title, marks), id, role, made, snippet(text, marks)))
        return hits


def split(words: str) -> list[str]:
    """What is looked for: words, and what is in quotation marks."""
    found = [quoted or word for quoted, word in re.findall(r'"([^"]+)"|([^\s"]+)', clean(words))]
    return list(dict.fromkeys(term.strip() for term in found if term.strip()))[:MOST_TERMS]


def snippet(text: str, marks: re.Pattern[str]) -> Snippet:
    """The text around the first mark, on one line, with "…" where something is left out."""
    first = marks.search(text)
    start = max(0, first.start() - BEFORE) if first else 0
    end = min(len(text), start + LENGTH)
    shown = re.sub(r"\s", " ", text[start:end])
    before = "…" if start else ""
    places = [(at.start() + len(before), at.end() + len(before)) for at in marks.finditer(shown)][:MOST_MARKS]
    return Snippet(before + shown + ("…" if end < len(text) else ""), tuple(places))


def _condition(column: str, index: str, id: str, terms: list[str], kind: str) -> tuple[str, list[object]]:
    """Every term, by the index where it can find the term, else in the texts."""
    parts: list[str] = []
    values: list[object] = []
    if found := [term for term in terms if _indexed(term, kind)]:
        parts.append(f"{id} IN (SELECT rowid FROM {index} WHERE {index} MATCH ?)")
        phrases = ('"{}"{}'.format(term.replace('"', '""'), "" if kind == "trigram" else "*") for term in found)
        values.append(" AND ".join(phrases))
    for term in terms:
        if not _indexed(term, kind):
            # LIKE knows upper and lower case of ASCII alone.
            forms = list(dict.fromkeys((term, term.lower(), term.upper(), term.capitalize())))
            parts.append("(" + " OR ".join([f"{column} LIKE ? ESCAPE '\\'"] * len(forms)) + ")")
            values += ["%" + re.sub(r"([%_\\])", r"\\\1", form) + "%" for form in forms]
    return " AND ".join(parts), values


def _indexed(term: str, kind: str) -> bool:
    return len(term) >= 3 if kind == "trigram" else kind == "unicode61" and term.isascii() and term.isalnum()
