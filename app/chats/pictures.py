"""The pictures of messages, each kept once, by the digest of its file."""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from app.attachment import Attachment
from app.chats.database import Database
from app.chats.errors import ChatsDamagedError, missing
from app.chats.records import Picture, clean
from engine.types import Image


class Pictures:
    """Every method raises ChatsError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, picture: Picture) -> Attachment:
        """With its file's bytes and its preview."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT width, height, preview_width, preview_height, preview, data FROM pictures WHERE digest = ?",
                (picture.digest,),
            ).fetchone()
        if row is None:
            raise missing()
        width, height, preview_width, preview_height, preview, data = row
        try:
            unpacked = zlib.decompress(preview)
        except zlib.error:
            raise ChatsDamagedError(
                f"The picture {picture.name} is damaged in {self._database.path}. Add it to a new message."
            ) from None
        return Attachment(Image(data, picture.name), width, height, preview_width, preview_height, unpacked)


def digest(attachment: Attachment) -> str:
    return hashlib.sha256(attachment.image.data).hexdigest()


def pack(attachments: Iterable[Attachment]) -> list[tuple[str, Attachment, bytes]]:
    """What takes time and needs no transaction: digests, and previews packed."""
    return [(digest(each), each, zlib.compress(each.preview, 1)) for each in attachments]


def attach_to(connection: sqlite3.Connection, message: int, packed: Sequence[tuple[str, Attachment, bytes]]) -> None:
    for position, (key, each, preview) in enumerate(packed):
        connection.execute(
            "INSERT OR IGNORE INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, each.width, each.height, each.preview_width, each.preview_height, preview, each.image.data),
        )
        connection.execute("INSERT INTO attached VALUES (?, ?, ?, ?)", (message, position, key, clean(each.image.name)))


def of_messages(connection: sqlite3.Connection, where: str, values: Sequence[object]) -> dict[int, list[Picture]]:
    """The pictures of the messages that `where` says, by message and in their order."""
    found: dict[int, list[Picture]] = {}
    for message, *fields in connection.execute(
        "SELECT message, digest, name, width, height FROM attached JOIN pictures USING (digest)"
        f" WHERE {where} ORDER BY message, position",
        tuple(values),
    ):
        found.setdefault(message, []).append(Picture(*fields))
    return found
