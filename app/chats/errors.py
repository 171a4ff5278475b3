"""What can go wrong with the chats on disk, each as a sentence, and what SQLite's own errors amount to."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.errors import MillstreamError, StorageError

NO_ROOM: Final = 1 << 20
"""Bytes: with less free than this, a refusal of the disk is for want of room."""


class ChatsError(MillstreamError):
    """Base of all errors about the chats on disk."""


class ChatsStorageError(ChatsError, StorageError):
    """The disk refused: full, read-only, or gone."""


class ChatsFullError(ChatsStorageError):
    """The disk is full."""


class ChatsReadOnlyError(ChatsStorageError):
    """The chats may be read and not be changed."""


class ChatsBusyError(ChatsError):
    """Another window kept the chats to itself for too long."""


class ChatsDamagedError(ChatsError):
    """The file is damaged. It is mended when it is opened the next time."""


class ChatsVersionError(ChatsReadOnlyError):
    """A newer Millstream wrote the file, in a form that this one must not change."""


class ChatMissingError(ChatsError):
    """The chat, message, folder or picture is not there, or not any more."""


class TransferError(ChatsError):
    """A file cannot be imported or exported."""


@contextmanager
def told(place: str) -> Iterator[None]:
    """Turn SQLite's errors within into those of this file. `place` is the file of the chats, or what stands for it."""
    try:
        yield
    except sqlite3.Error as error:
        raise as_chats_error(error, place) from error
    except OverflowError as error:
        raise too_large() from error


def as_chats_error(error: sqlite3.Error, place: str) -> ChatsError:
    # Errors of the Python module itself have no code.
    code = getattr(error, "sqlite_errorcode", 0) or 0
    kind = code & 0xFF
    if kind == sqlite3.SQLITE_FULL or (kind in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and no_room(place)):
        return full(place)
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return ChatsReadOnlyError(
            f"The chats in {place} cannot be changed: the file, or its folder, may only be read. Give yourself the "
            "right to write there, and try again."
        )
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ChatsBusyError(
            f"Another window is writing to the chats in {place} and does not come to an end. Wait a moment, and try "
            "again."
        )
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return ChatsDamagedError(
            f"The chats in {place} are damaged. Start Millstream again: it saves what can be read, and deletes nothing."
        )
    if kind == sqlite3.SQLITE_CONSTRAINT:
        return missing()
    if kind == sqlite3.SQLITE_TOOBIG:
        return too_large()
    if kind == sqlite3.SQLITE_IOERR:
        return ChatsStorageError(
            f"The disk refused to read or write the chats in {place}. See whether it is still connected, and try again."
        )
    return ChatsError(f"The chats in {place} could not be read or written ({error}). Start Millstream again.")


def no_room(place: str) -> bool:
    try:
        return shutil.disk_usage(Path(place).parent).free < NO_ROOM
    except OSError:
        return False


def full(place: str) -> ChatsFullError:
    return ChatsFullError(f"The disk that holds {place} is full, and this was not kept. Make room, and try again.")


def too_large() -> ChatsError:
    return ChatsError("This message is too large to be kept: it is over a gigabyte. Send a part of it.")


def missing() -> ChatMissingError:
    return ChatMissingError("This chat or message is not there any more: another window may have deleted it.")


def from_os(error: OSError, place: str) -> ChatsStorageError:
    """What the system said of a file, as a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(place)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ChatsReadOnlyError(f"{place} cannot be written: the file, or its folder, may only be read.")
    return ChatsStorageError(f"The disk refused {place} ({error.strerror or error}). See whether it is connected.")
