"""Which programs have the chats open: each holds a lock on a file of its own, which the system lets go at its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from app.chats.errors import ChatsBusyError, from_os

GATE_S: Final = 60.0
"""So long at most does a program wait for another to open, and mend, the chats."""


class Owners:
    """The folder `<chats>-open` beside the chats: the lock `gate`, and one for each program."""

    def __init__(self, chats: Path) -> None:
        self._folder = chats.with_name(f"{chats.name}-open")
        self.token = uuid.uuid4().hex
        self._own = FileLock(self._folder / self.token)

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Within it no other program opens the chats. Raises ChatsBusyError and ChatsStorageError."""
        gate = FileLock(self._folder / "gate")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            gate.acquire(timeout=GATE_S)
        except Timeout:
            raise ChatsBusyError(
                f"Another Millstream is opening the chats beside {self._folder} and does not come to an end. End it, "
                "and start again."
            ) from None
        except OSError as error:
            raise from_os(error, str(self._folder)) from error
        except NotImplementedError:
            raise from_os(OSError(0, "it cannot lock files"), str(self._folder)) from None
        try:
            yield
        finally:
            gate.release()

    def enter(self) -> None:
        """Be one of them, within the `gate`. Raises ChatsStorageError."""
        try:
            self._own.acquire(timeout=0)
        except OSError as error:
            raise from_os(error, str(self._folder)) from error

    def leave(self) -> None:
        self._own.release()
        with suppress(OSError):
            (self._folder / self.token).unlink(missing_ok=True)

    def suspect(self) -> None:
        """Have the chats be read through at the next start, as after a crash."""
        with suppress(OSError):
            (self._folder / uuid.uuid4().hex).touch()

    def others(self) -> tuple[set[str], set[str]]:
        """→ those that live, and those that ended without leaving, who are forgotten. Within the `gate`.
        Raises ChatsStorageError."""
        living, dead = set(), set()
        try:
            there = list(self._folder.iterdir())
        except OSError as error:
            raise from_os(error, str(self._folder)) from error
        for path in there:
            if path.name in ("gate", self.token):
                continue
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except (Timeout, OSError):
                living.add(path.name)
                continue
            lock.release()
            with suppress(OSError):
                path.unlink(missing_ok=True)
            dead.add(path.name)
        return living, dead
