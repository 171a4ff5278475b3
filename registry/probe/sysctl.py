"""What macOS tells of itself by name."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Final

Sysctl = Callable[[str], "str | int | None"]
"""The value of a name such as `hw.memsize`; `None` where there is no such name."""

_WORDS: Final = (4, 8)


def sysctl(name: str) -> str | int | None:
    """A number where the value has its size, else a text. Nothing on other systems."""
    if sys.platform != "darwin":
        return None
    ask, size = ctypes.CDLL(None).sysctlbyname, ctypes.c_size_t(0)
    if ask(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t(0)) or not size.value:
        return None
    buffer = ctypes.create_string_buffer(size.value)
    if ask(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return None
    raw = buffer.raw[: size.value]
    if raw.endswith(b"\0") and raw[:-1].isascii() and raw[:-1].decode().isprintable() and raw[:-1]:
        return raw[:-1].decode()
    return int.from_bytes(raw, sys.byteorder) if len(raw) in _WORDS else None
