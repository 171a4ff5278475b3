"""Names that come from elsewhere, checked before anything is written under them.

The rules are those of the strictest system, Windows, on all systems, so that a library can be moved between them
(learn.microsoft.com, "Naming Files, Paths, and Namespaces").
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

from engine.errors import DownloadError

MAX_PART: Final = 255
"""Bytes of a part of a path that every usual file system takes."""
MAX_PATH: Final = 1000
MAX_NAME: Final = 180
"""Bytes of a name that is made here, which leaves room for what is added to it."""

_RESERVED: Final = re.compile(r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])(?: *\..*)?", re.I | re.S)
_FORBIDDEN: Final = re.compile(r'[<>:"|?*\\]')
_ID_PART: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_TURNS_TEXT: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Signs that make a name read backwards, and so seem to be another."""


def safe_path(path: str) -> PurePosixPath:
    """`path`, relative and with "/" between its parts, where it names the same place below a folder on every system.

    Raises `DownloadError`.
    """
    if reason := _path_fault(path):
        raise DownloadError(f"The file name {_shown(path)} is not safe to write: {reason}. The file is not fetched.")
    return PurePosixPath(path)


def safe_id(id: str) -> str:
    """`id`, where it is `owner/name` of the Hub's alphabet, and so two folders' names. Raises `DownloadError`."""
    parts = id.split("/")
    if (
        len(parts) != 2
        or any(not _ID_PART.fullmatch(part) or _RESERVED.fullmatch(part) for part in parts)
        or any(wrong in id for wrong in ("--", ".."))
        or id.endswith(".git")
    ):
        raise DownloadError(
            f"{_shown(id)} is not the name of a repository. It is written owner/name, with letters, digits, and - _ . "
            "inside."
        )
    return id


def made_safe(name: str) -> str:
    """A name like `name` that can be a file's or a folder's on every system, and is not hidden."""
    name = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    name = "".join("-" if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in name)
    name = _TURNS_TEXT.sub("-", _FORBIDDEN.sub("-", name.replace("/", "-"))).strip(" .-")
    if len(name.encode()) > MAX_NAME:
        name, _, suffix = name.rpartition(".") if "." in name[-12:] else (name, "", "")
        end = f".{suffix}" if suffix else ""
        name = name.encode()[: MAX_NAME - len(end.encode())].decode(errors="ignore").rstrip(" .") + end
    return f"_{name}" if not name or _RESERVED.fullmatch(name) else name


def _path_fault(path: str) -> str:
    """Why a path is refused; "" for a sound one."""
    if not path:
        return "it is empty"
    if len(path) > MAX_PATH:
        return f"it is longer than {MAX_PATH} characters"
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in path) or _TURNS_TEXT.search(path):
        return "it holds a sign that cannot be seen"
    if sign := _FORBIDDEN.search(path):
        return f"it holds the sign {sign[0]}"
    if path.startswith("/"):
        return "it begins at the root of the disk"
    return next((fault for part in path.split("/") if (fault := _part_fault(part))), "")


def _part_fault(part: str) -> str:
    if part in (".", ".."):
        return f"it goes through {part}"
    if not part:
        return "it has a part without a name"
    if len(part.encode()) > MAX_PART:
        return f"a part of it is longer than {MAX_PART} bytes"
    if part.endswith((".", " ")):
        return "a part of it ends with a dot or a blank"
    if _RESERVED.fullmatch(part):
        return f"Windows keeps the name {part} for itself"
    return ""


def _shown(name: str) -> str:
    """In quotation marks, with what cannot be seen written out, and not too long."""
    short = name if len(name) <= 80 else f"{name[:77]}…"
    return "“" + "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in short) + "”"
