"""What can be seen of a download at one moment, and what the queue knows of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.cancel import Cancel
from registry.downloads.record import ItemFolder, Record, Wanted
from registry.downloads.speed import Speed

State = Literal["queued", "checking", "downloading", "verifying", "waiting", "paused", "elsewhere", "done", "removed"]
RUNNING: frozenset[State] = frozenset({"queued", "checking", "downloading", "verifying", "waiting"})


@dataclass(frozen=True)
class ItemFile:
    """`done` bytes of `nbytes` are on the disk."""

    name: str
    nbytes: int
    done: int


@dataclass(frozen=True)
class Item:
    """A download at one moment.

    `wanted` is None where the record on the disk is damaged: such an item can only be removed. `sentence` says why it
    is paused or waits, "" where a person paused it. `done` of `nbytes` never falls while the program runs. `speed` is
    in bytes a second, `seconds_left` None where it is not known. `wait` is how many seconds it still waits before it is
    tried again. `path` is the model's folder once it is done. "elsewhere": another program downloads it. `needs_token`:
    it is paused, and an access token may be what it needs. `repair`: what is whole of it was in the library, and is
    there again once the item is removed.
    """

    id: str
    name: str
    state: State
    sentence: str
    nbytes: int
    done: int
    files: tuple[ItemFile, ...]
    wanted: Wanted | None
    speed: float
    seconds_left: float | None
    wait: float
    path: Path | None
    needs_token: bool = False
    repair: bool = False


@dataclass
class Entry:
    """An item within the queue, whose lock guards it."""

    folder: ItemFolder
    record: Record | None
    state: State
    sentence: str = ""
    files: dict[str, int] = field(default_factory=dict)
    shown: int = 0
    speed: Speed = field(default_factory=Speed)
    until: float = 0.0
    path: Path | None = None
    cancel: Cancel = field(default_factory=Cancel)
    thread: threading.Thread | None = None
    told: float = float("-inf")

    @property
    def missing(self) -> int:
        """Bytes that are still to come."""
        return self.record.wanted.nbytes - sum(self.files.values()) if self.record else 0

    def snapshot(self, now: float) -> Item:
        record = self.record
        wanted = record.wanted if record else None
        files = {name: file.nbytes for name, file in wanted.names().items()} if wanted else {}
        total = sum(files.values())
        speed = self.speed.mean(now) if self.state == "downloading" else 0.0
        return Item(
            id=self.folder.id,
            name=wanted.name if wanted else self.folder.id,
            state=self.state,
            sentence=self.sentence,
            nbytes=total,
            done=total if self.state == "done" else self.shown,
            files=tuple(ItemFile(name, nbytes, self.files.get(name, 0)) for name, nbytes in files.items()),
            wanted=wanted,
            speed=speed,
            seconds_left=self.missing / speed if speed >= 1 else None,
            wait=max(0.0, self.until - now) if self.state == "waiting" else 0.0,
            path=self.path,
            needs_token=self.state == "paused" and record is not None and record.needs_token,
            repair=record is not None and record.repair,
        )

    def came(self, name: str, done: int, now: float) -> None:
        """`done` bytes of a file are there."""
        fresh = done - self.files.get(name, 0)
        self.files[name] = done
        self.shown = max(self.shown, sum(self.files.values()))
        if fresh > 0 and self.state == "downloading":
            self.speed.add(fresh, now)
