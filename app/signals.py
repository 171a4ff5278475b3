"""How a command leaves when it is told to from outside: through all that it has still to end and to close."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

AGAIN = 0.02
"""Seconds after which a signal that came at a bad moment comes once more."""


def answer() -> None:
    """For a process that is one command's alone: have Ctrl+C raise KeyboardInterrupt, and SIGTERM and SIGHUP, on
    Windows Ctrl+Break, raise SystemExit with 128 and the signal's number. A signal that whoever started the program
    has it ignore, as `nohup` does, stays ignored.

    Windows knows no request to leave but those of a console, which reach all processes on it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    for number in _endings():
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def by_default() -> None:
    """Leave the answers to the system: where code in C waits for what happens, no handler in Python would run."""
    for number in (signal.SIGINT, *_endings()):
        if signal.getsignal(number) is _leave:
            signal.signal(number, signal.SIG_DFL)


def ignore_interrupts() -> None:
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _endings() -> list[signal.Signals]:
    return [signal.Signals[name] for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


def _leave(number: int, frame: FrameType | None) -> None:
    """Two moments are bad for an exception: modules in C that are being imported turn it into an error of another kind,
    and there is nothing to end or to close yet; and out of a finaliser it goes nowhere but to standard error."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        if frame.f_code.co_name == "__del__":
            return _later(number)
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _later(number: int) -> None:
    try:
        timer = threading.Timer(AGAIN, _send, (number,))
        timer.daemon = True
        timer.start()
    except RuntimeError:  # the system refuses a thread
        os._exit(128 + number)


def _send(number: int) -> None:
    """To the process, so that the main thread wakes up; Windows can only pretend."""
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)
