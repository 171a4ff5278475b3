"""Signals kept waiting while something would be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

ENDING: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Those that end a program, as far as the system has them."""


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that comes within is answered after it. Outside the main thread, which alone answers signals, this does
    nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    try:
        for number in (getattr(signal, name) for name in ENDING if hasattr(signal, name)):
            answer = signal.getsignal(number)
            if answer not in (None, signal.SIG_IGN):
                before[number] = answer
                signal.signal(number, note)
        yield
    finally:
        for number, answer in before.items():
            signal.signal(number, answer)
        for number in came:
            signal.raise_signal(number)
