"""The downloads, as the window has them: every call goes to a thread, every change comes back as a signal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.models_page.acts import RUNNING
from app.models_page.rate import KeptRate
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from engine.cancel import Cancel
from engine.errors import StorageError

if TYPE_CHECKING:
    from registry.downloads.item import Item
    from registry.downloads.queue import Downloads
    from registry.downloads.record import Wanted


class Desk(QObject):
    """Owns the queue of downloads from `start` to `close`. `items` are the newest that is known of each, in order."""

    changed = Signal(object)
    """An Item, which is the newest of its kind; one that is "removed" is not in `items` any more."""
    arrived = Signal(object)
    """An Item whose model is in the library now: it is whole, or its repair was removed."""
    failed = Signal(str)
    rated = Signal()
    """How fast they may be is known, or another than before."""

    _came = Signal(object)

    def __init__(self, services: Services, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.items: dict[str, Item] = {}
        self.rate: int | None = None
        """Bytes a second for all together; None is without a limit."""
        self._services = services
        self._kept_rate = KeptRate(services.rate)
        self._downloads: Downloads | None = None
        self._resting = False
        self._tasks = Tasks(self, threads=1)  # one, so that what is asked is done in that order
        self._came.connect(self._take)

    def start(self) -> None:
        """Go on with what an earlier run left."""
        self._tasks.run(self._open, self._opened, self._fail)

    def add(self, wanted: Wanted) -> None:
        self._ask(lambda downloads: downloads.add(wanted))

    def repair(self, folder: Path) -> None:
        """Fetch anew what is damaged of a model; where nobody read its files yet, they are read first."""

        def work(downloads: Downloads) -> None:
            from registry.downloads.verify import verify
            from registry.provenance import read_provenance

            if (kept := read_provenance(folder)) is not None and not kept.damaged:
                verify(folder)
            downloads.repair(folder)

        self._ask(work)

    def pause(self, id: str) -> None:
        self._ask(lambda downloads: downloads.pause(id))

    def resume(self, id: str) -> None:
        self._ask(lambda downloads: downloads.resume(id))

    def remove(self, id: str) -> None:
        """Delete what came of it; of one that is whole, only the entry."""
        self._ask(lambda downloads: downloads.remove(id))

    def limit(self, rate: int | None) -> None:
        """Have all together take so many bytes a second at most, from now on and at the next start."""
        self.rate = rate
        self.rated.emit()

        def work(_: Cancel) -> None:
            self._kept_rate.write(rate)
            if self._downloads is not None:
                self._downloads.set_rate(rate)

        self._tasks.run(work, lambda _: None, self._fail)

    def rest(self, then: Callable[[], None]) -> None:
        """Stop them all until `go_on`, so that nobody is at work in the library."""
        self._resting = True

        def work(_: Cancel) -> None:
            self._shut()

        def rested() -> None:
            for item in self.running:
                self._take(replace(item, state="paused", sentence="", speed=0.0, seconds_left=None))
            then()

        self._tasks.run(work, lambda _: rested(), self._fail)

    def go_on(self) -> None:
        """From the beginning, as at a start: the library may be elsewhere, or its drive be there again."""
        self._resting = False

        def work(cancel: Cancel) -> tuple[Item, ...]:
            self._shut()
            return self._open(cancel)

        def opened(items: tuple[Item, ...]) -> None:
            there = {item.id for item in items}
            for gone in [item for id, item in self.items.items() if id not in there]:
                del self.items[gone.id]
                self.changed.emit(gone)
            for item in items:
                self._take(item)

        self._tasks.run(work, opened, self._fail)

    def look_again(self) -> None:
        """What other programs download is looked at anew."""
        if self._downloads is not None and not self._resting:
            self._tasks.run(lambda _: self._there().items(), self._renew, self._fail)

    @property
    def running(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items.values() if item.state in RUNNING)

    def close(self) -> None:
        """Stop them; they go on at the next start. Takes some seconds where a read hangs."""
        self._tasks.close()
        self._shut()

    def _shut(self) -> None:
        if self._downloads is not None:
            self._downloads.close()
            self._downloads = None

    def _open(self, cancel: Cancel) -> tuple[Item, ...]:
        from registry.downloads.queue import MARGIN, Downloads

        margin = self._services.margin
        self._downloads = Downloads(
            self._services.library(),
            [self._services.source],
            on_change=self._came.emit,
            rate=self._kept_rate.read(),
            go_on=True,
            margin=MARGIN if margin is None else margin,
        )
        return self._downloads.items()

    def _there(self) -> Downloads:
        if self._resting:
            raise StorageError("The models are being moved. Wait until that is done, and try again.")
        if self._downloads is None:  # the disk refused at the start, and may not do so any more
            self._open(Cancel())
        assert self._downloads is not None
        return self._downloads

    def _ask(self, call: Callable[[Downloads], object]) -> None:
        def work(_: Cancel) -> None:
            with suppress(KeyError):  # the item has gone meanwhile
                call(self._there())

        self._tasks.run(work, lambda _: None, self._fail)

    def _opened(self, items: tuple[Item, ...]) -> None:
        if self._downloads is not None:
            self.rate = self._downloads.rate
            self.rated.emit()
        for item in items:
            if item.id not in self.items:  # else something newer was told
                self._take(item)

    def _renew(self, items: tuple[Item, ...]) -> None:
        there = {item.id for item in items}
        for item in items:
            if item.state not in RUNNING:
                self._take(item)
        for gone in [item for id, item in self.items.items() if id not in there and item.state == "elsewhere"]:
            del self.items[gone.id]
            self.changed.emit(gone)

    def _take(self, item: Item) -> None:
        former = self.items.get(item.id)
        if item.state == "removed":
            self.items.pop(item.id, None)
        else:
            self.items[item.id] = item
        self.changed.emit(item)
        came = item.state == "done" and (former is None or former.state != "done")
        if came or (item.state == "removed" and item.repair):
            self.arrived.emit(item)

    def _fail(self, sentence: str, error: BaseException) -> None:
        self.failed.emit(sentence)
