"""The registry of containers: a file on disk becomes a `TensorIndex`, whichever format it is in.

A container joins by a file of its own and a line in `_READERS`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from engine.errors import ModelFileError
from engine.formats import gguf
from engine.formats.cursor import opened
from engine.formats.index import TensorIndex

_READERS: Mapping[bytes, Callable[[Path], TensorIndex]] = MappingProxyType({b"GGUF": gguf.read})
"""By the bytes with which a file of that format begins."""

_BEGINNING = 512
"""Bytes that are looked at to tell what a file is."""


def open_index(path: Path) -> TensorIndex:
    """The model at `path`, with all the files that belong to it.

    Every tensor's span is known to lie inside its file. Raises ModelFileError for what is missing, damaged or no model,
    UnsupportedModelError for a sound file with something in it that the engine does not know.
    """
    _check_regular(path)
    with opened(path) as file:
        beginning = file.read(_BEGINNING)
    for magic, reader in _READERS.items():
        if beginning.startswith(magic):
            return reader(path)
    raise ModelFileError(
        f"{path.name} is not a model that can be read: it {_looks_like(beginning)}. Choose a GGUF file (.gguf)."
    )


def _check_regular(path: Path) -> None:
    """Raise ModelFileError for anything but a file with something in it. A pipe or a device is never opened."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"{path!s:.500} cannot be opened: {reason}.") from error
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{path} is a folder. Choose the model file (.gguf) in it.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path} is not an ordinary file. Choose a model file (.gguf).")
    if status.st_size == 0:
        raise ModelFileError(f"{path} is empty. Download it again.")


def _looks_like(beginning: bytes) -> str:
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
    if beginning[8:9] == b"{" and int.from_bytes(beginning[:8], "little") < 1 << 32:
        return "looks like a safetensors file"
    if beginning.startswith((b"lmgg", b"fmgg", b"tjgg", b"algg")):
        return "is in a GGML format older than GGUF; convert the model anew"
    return "does not begin as any known format does"
