"""Chats out to files and in from files. A file is written whole or not at all; of one that is read, what is sound."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from app.attachment import Attachment, attach
from app.chats import chatgpt, millstream_json
from app.chats.database import Database
from app.chats.errors import ChatMissingError, TransferError, from_os
from app.chats.listing import Chats
from app.chats.markdown import Words, as_markdown, file_of
from app.chats.portable import put_in, take_out
from app.chats.turns import Turns
from engine.errors import ImageError
from registry.paths import made_safe
from registry.saved import rename

LARGEST: Final = 4 << 30
"""Bytes of a file that is imported, unpacked."""
MOST_FAULTS: Final = 1000
_PICTURES: Final = "pictures"


@dataclass(frozen=True)
class Imported:
    """How many chats were added, how many were there already, and what was left out, a sentence each."""

    added: int
    present: int
    faults: tuple[str, ...]


class Transfer:
    """Every method raises ChatsError: ChatsStorageError where the disk refuses, TransferError for a file that is none
    of chats. All take long, so never in the window's thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def export_json(self, file: Path, chats: Sequence[int] | None = None) -> int:
        """Write these chats, or all but the trash, with branches and pictures: → how many. `import_file` reads it."""
        count = 0
        with self._database.read() as connection, _written(file) as out:
            out.write(f"[\n{json.dumps(dict(millstream_json.HEADER))}".encode())
            there: set[str] = set()
            for id in self._all(connection) if chats is None else chats:
                chat = take_out(connection, id)
                if chat is None:
                    raise ChatMissingError("This chat is not there any more: another window may have deleted it.")
                for digest in {each.digest for message in chat.messages for each in message.pictures} - there:
                    (data,) = connection.execute("SELECT data FROM pictures WHERE digest = ?", (digest,)).fetchone()
                    out.write(f",\n{json.dumps(millstream_json.from_picture(digest, data))}".encode())
                    there.add(digest)
                # Only ASCII: no sign in it can be taken for the end of a line.
                out.write(f",\n{json.dumps(millstream_json.from_chat(chat))}".encode())
                count += 1
            out.write(b"\n]\n")
        return count

    def export_markdown(self, file: Path, chat: int, words: Words | None = None) -> None:
        """What is shown of one chat. Its pictures come into the folder `pictures` beside the file."""
        with self._database.read() as connection:
            self._write_markdown(connection, file, chat, words or Words())

    def export_all_markdown(self, folder: Path, words: Words | None = None) -> int:
        """A file for each chat but those in the trash, named by its title: → how many. No file there is replaced."""
        count = 0
        with self._database.read() as connection:
            for id in self._all(connection):
                title = Chats(self._database).get(id).title
                name = made_safe(title[:80]) if title.strip() else (words or Words()).untitled
                number, file = 1, folder / f"{name}.md"
                while os.path.lexists(file):
                    number += 1
                    file = folder / f"{name} ({number}).md"
                self._write_markdown(connection, file, id, words or Words())
                count += 1
        return count

    def import_file(self, file: Path) -> Imported:
        """Add the chats of an export: our JSON, or ChatGPT's `conversations.json` or the ZIP archive around it.

        Each chat comes whole or not at all, and one that is there already stays as it is.
        """
        faults: list[str] = []
        pictures: dict[str, Attachment] = {}
        added = present = known = 0
        for number, value in _elements(_content(file), faults):
            try:
                if not isinstance(value, dict):
                    raise ValueError("it is no object")
                kind = millstream_json.kind(value)
                if kind == "header":
                    known += 1
                    if value.get("version") != millstream_json.VERSION:
                        faults.append(f"{file.name} is of a newer Millstream: what this one does not know is left out.")
                    continue
                if kind == "picture":
                    known += 1
                    digest, data = millstream_json.to_picture(value)
                    pictures[digest] = attach(data, f"Picture {number}")
                    continue
                if kind != "chat" and not chatgpt.is_one(value):
                    raise ValueError("it is not known what it is")
                known += 1
                read = millstream_json.to_chat if kind == "chat" else chatgpt.to_chat
                chat, wrong = read(value, time.time())
                if lost := {each.digest for one in chat.messages for each in one.pictures} - pictures.keys():
                    wrong = [*wrong, f"{len(lost)} of its pictures are missing"]
                faults += [f"Chat {number}, “{chat.title[:60]}”: {each}." for each in wrong]
                with self._database.write() as connection:
                    new = put_in(connection, chat, pictures)
                added, present = added + new, present + (not new)
            except (ValueError, TypeError, ImageError) as error:
                faults.append(f"Entry {number} was left out: {error}.")
        if not known:
            raise TransferError(
                f"{file.name} holds no chats that Millstream knows. It reads its own exports (JSON) and ChatGPT's "
                "(conversations.json, or the ZIP archive with it)."
            )
        return Imported(added, present, tuple(faults[:MOST_FAULTS]))

    def _all(self, connection: sqlite3.Connection) -> list[int]:
        return [row[0] for row in connection.execute("SELECT id FROM chats WHERE deleted_at IS NULL ORDER BY id")]

    def _write_markdown(self, connection: sqlite3.Connection, file: Path, id: int, words: Words) -> None:
        chat, turns = Chats(self._database).get(id), Turns(self._database).path(id)
        places: dict[str, str] = {}
        for picture in (each for turn in turns for each in turn.pictures):
            places[picture.digest] = f"{_PICTURES}/{file_of(picture)}"
            target = file.parent / _PICTURES / file_of(picture)
            if not target.exists():
                (data,) = connection.execute("SELECT data FROM pictures WHERE digest = ?", (picture.digest,)).fetchone()
                with _written(target) as out:
                    out.write(data)
        with _written(file) as out:
            out.write(as_markdown(chat, turns, places, words).encode())


@contextmanager
def _written(file: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is whole. Raises ChatsStorageError."""
    new = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        rename(new, file)
    except OSError as error:
        raise from_os(error, str(file)) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _content(file: Path) -> list[str]:
    """The texts of the lists in it. Raises TransferError and ChatsStorageError."""
    try:
        if not zipfile.is_zipfile(file):
            if file.stat().st_size > LARGEST:
                raise _too_large(file)
            return [file.read_bytes().decode("utf-8-sig", "replace")]
        with zipfile.ZipFile(file) as archive:
            members = [
                each
                for each in archive.infolist()
                if (name := each.filename.rpartition("/")[2]).startswith("conversations") and name.endswith(".json")
            ]
            if sum(member.file_size for member in members) > LARGEST:
                raise _too_large(file)
            return [archive.read(member).decode("utf-8-sig", "replace") for member in members]
    except OSError as error:
        raise TransferError(f"{file} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise TransferError(f"{file.name} is damaged, and cannot be unpacked. Download or copy it again.") from error


def _too_large(file: Path) -> TransferError:
    return TransferError(f"{file.name} is larger than {LARGEST >> 30} GiB. Export fewer chats at once.")


def _elements(texts: Sequence[str], faults: list[str]) -> Iterator[tuple[int, object]]:
    """Each element with its number, past any damage: after it, reading goes on with the next line."""
    decoder, number = json.JSONDecoder(), 0
    for text in texts:
        at = _past_blanks(text, 0)
        at = _past_blanks(text, at + 1) if text.startswith("[", at) else at
        while at < len(text) and text[at] != "]":
            number += 1
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                after = text.find("\n", at)
                rest = " The file ends within it." if after < 0 else ""
                faults.append(f"Entry {number} is damaged, and was left out.{rest}")
                at = len(text) if after < 0 else _past_blanks(text, after)
                continue
            yield number, value
            at = _past_blanks(text, at)


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at
