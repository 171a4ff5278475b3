"""What a path seems to be, before any format is read from it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.errors import ModelFileError
from engine.units import NAMED, elided

BEGINNING = 512
"""Bytes that are looked at to tell what a file is."""


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder. Raises ModelFileError where nothing is there, or it cannot be looked at."""
    return stat.S_ISDIR(_status(path).st_mode)


def check_file(path: Path) -> None:
    """Raise ModelFileError for anything but a file with something in it. A pipe or a device is never opened."""
    status = _status(path)
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{path} is a folder, where a file is wanted.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is not an ordinary file. Choose a model file, or a checkpoint's folder.")
    if status.st_size == 0:
        raise ModelFileError(f"{path} is empty. Download it again.")


def looks_like(beginning: bytes) -> str:
    """What a file that begins so seems to be, as the end of a sentence about it."""
    text = beginning.lstrip().lower()
    if len(beginning) < 4:
        return f"has only {len(beginning)} bytes"
    if not beginning.strip(b"\0"):
        return "begins with nothing but zeros, like a download that was not finished"
    if beginning.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, which stands for the model but does not hold it; download the file itself"
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "is a web page, perhaps an error message that was saved as the model"
    if beginning.startswith(b"PK\x03\x04"):
        return "is a ZIP archive, like a PyTorch checkpoint"
    if text.startswith(b"{"):
        return "is JSON, like a part of a checkpoint; choose the folder in which it lies"
    if beginning.startswith((b"lmgg", b"fmgg", b"tjgg", b"algg")):
        return "is in a GGML format older than GGUF; convert the model anew"
    return "does not begin as any known format does"


def like_safetensors(beginning: bytes) -> bool:
    """Whether a file begins as safetensors do: a length of eight bytes, then a JSON object."""
    return beginning[8:9] == b"{" and int.from_bytes(beginning[:8], "little") < 1 << 32


def _status(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {elided(str(path), NAMED)}.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"{elided(str(path), NAMED)} cannot be opened: {reason}.") from error
