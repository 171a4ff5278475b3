"""The chats of a person: the way in for the window."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from app.chats.listing import Chats
from app.chats.opening import Opened, open_database
from app.chats.pictures import Pictures
from app.chats.searching import Search
from app.chats.transfer import Transfer
from app.chats.turns import Turns


class ChatStore:
    """May be used from every thread. `notices` are sentences for the person; `kept` is whether what is written lasts
    longer than the program, and `writable` whether anything can be."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self.database = opened.database
        self.chats = Chats(opened.database)
        self.turns = Turns(opened.database)
        self.pictures = Pictures(opened.database)
        self.search = Search(opened.database)
        self.transfer = Transfer(opened.database)

    @classmethod
    def open(cls, path: Path) -> ChatStore:
        """Opens the file, makes it, or mends it. Takes as long as reading it does, so never in the window's thread.

        Where the disk refuses, the chats are in memory and `notices` says so. Raises ChatsError where nothing helps.
        """
        return cls(open_database(path))

    @property
    def notices(self) -> tuple[str, ...]:
        return self._opened.notices

    @property
    def cut_off(self) -> int:
        """How many replies were under way when a program ended before its time."""
        return self._opened.cut_off

    @property
    def kept(self) -> bool:
        return self.database.mode == "disk"

    @property
    def writable(self) -> bool:
        return self.database.mode != "read-only"

    def changed_elsewhere(self) -> bool:
        """See `Database.changed_elsewhere`."""
        return self.database.changed_elsewhere()

    def close(self) -> None:
        self.database.close()
        if self._opened.owners is not None:
            self._opened.owners.leave()

    def __enter__(self) -> ChatStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
