"""The models' way to another folder: downloads rest, the move runs in a thread, and downloads go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.models_page.desk import Desk
from app.models_page.last_used import LastUsed
from app.models_page.services import Services
from app.models_page.shelf import Shelf
from app.models_page.standing import Cut
from app.models_page.tasks import Failed, Tasks
from app.throttle import Every
from engine.cancel import Cancel, Cancelled

if TYPE_CHECKING:
    from registry.moving import Survey
    from registry.progress import Progress

INTERVAL = 0.1


class Mover(QObject):
    changed = Signal()
    ended = Signal(str)
    """A sentence on why it did not come to its end; "" where it did."""

    _progressed = Signal(object)

    def __init__(self, services: Services, desk: Desk, shelf: Shelf, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.target: Path | None = None
        """Where the models are going just now."""
        self.stopped = False
        """Whether the person stopped the last move."""
        self.done = self.total = 0
        self._services, self._desk, self._shelf = services, desk, shelf
        self._tasks = Tasks(self, threads=2)  # a move takes long, and must not hold up the page's other work
        self._cancel = Cancel()
        self._asked = Cancel()
        self._progressed.connect(self._show)

    @property
    def moving(self) -> bool:
        return self.target is not None

    def survey(self, target: Path, then: Callable[[Survey], None], failed: Failed) -> None:
        """What it would mean to move there; an older question is dropped."""

        def work(_: Cancel) -> Survey:
            from registry.moving import survey_move

            return survey_move(self._services.library().root, target, self._services.settings)

        self._asked.set()
        self._asked = self._tasks.run(work, then, failed)

    def refusal(self, then: Callable[[str], None]) -> None:
        """Why the models cannot be elsewhere at all; "" where they can."""

        def work(_: Cancel) -> str:
            from engine.errors import SettingsError
            from registry.moving import refuse_to_choose

            try:
                refuse_to_choose(self._services.settings)
            except SettingsError as error:
                return str(error)
            return ""

        self._tasks.run(work, then)

    def move(self, target: Path, source: Path | None = None) -> None:
        """`source` is where the models are, unless a move from there was cut off at its end."""
        if self.moving:
            return
        self.target = target
        self.stopped = False
        self.done = self.total = 0
        self._cancel = Cancel()
        self._shelf.stop_verifying()
        self._desk.rest(lambda: self._run(source, target))
        self.changed.emit()

    def go_on(self, cut: Cut) -> None:
        """With a move that was cut off."""
        self.move(cut.target, cut.source)

    def forget(self, then: Callable[[], None]) -> None:
        """Ask no more about a move that was cut off. What is left of it stays where it is."""

        def work(_: Cancel) -> None:
            from registry.place import Place

            place = Place.read(self._services.settings)
            Place(place.models, place.chosen).write(self._services.settings)

        self._tasks.run(work, lambda _: then(), lambda sentence, _: self._shelf.failed.emit(sentence))

    def stop(self) -> None:
        """Soon. What was copied stays there, for the move to go on with."""
        if self.moving:
            self.stopped = True
            self._cancel.set()

    def choose(self, folder: Path, then: Callable[[], None], failed: Failed) -> None:
        """Have the models be there from now on, and move none."""

        def work(_: Cancel) -> None:
            from registry.moving import refuse_to_choose
            from registry.place import choose

            refuse_to_choose(self._services.settings)
            choose(folder, self._services.settings)

        def done(_: None) -> None:
            self._desk.go_on()
            self._shelf.refresh()
            then()

        self._tasks.run(work, done, failed)

    def close(self) -> None:
        """Leave a move that is under way; it is offered again at the next start."""
        self._cancel.set()
        self._tasks.close()

    def _run(self, source: Path | None, target: Path) -> None:
        every = Every(INTERVAL)

        def told(progress: Progress) -> None:
            if every.due() or progress.done == progress.total:
                self._progressed.emit(progress)

        own = self._cancel

        def work(_: Cancel) -> None:
            from registry.moving import move_library

            services = self._services
            # Its end is to be heard also where it was stopped: until then, nobody may write there.
            with suppress(Cancelled):
                root = source or services.library().root
                moved = move_library(root, target, told, own, services.settings)
                LastUsed(services.last_used).moved(root, moved.root)

        self._tasks.run(work, lambda _: self._end(""), lambda sentence, _: self._end(sentence))

    def _show(self, progress: Progress) -> None:
        if self.moving:
            self.done, self.total = progress.done, progress.total
            self.changed.emit()

    def _end(self, sentence: str) -> None:
        self.target = None
        self._desk.go_on()
        self._shelf.refresh()
        self.changed.emit()
        self.ended.emit(sentence)
