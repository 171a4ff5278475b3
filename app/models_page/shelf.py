"""What is in the library, as the window knows it: looked up in a thread, told by a signal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.models_page.last_used import LastUsed
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.throttle import Every
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.library import LibraryModel
    from registry.progress import Progress
    from registry.removing import DamagedModel

INTERVAL = 0.1


@dataclass(frozen=True)
class Kept:
    """A model of the library. `folder` is that of one which Millstream downloaded, so that it can be verified; `broken`
    are those of its files that are damaged, for which it cannot be loaded; `problem` says what else keeps it from that.
    `linked`: it lies elsewhere. `used` and `day` are days, "" where they are not known: when it was loaded last, and
    when it came."""

    model: LibraryModel | DamagedModel
    path: Path
    nbytes: int
    folder: Path | None = None
    broken: tuple[str, ...] = ()
    problem: str = ""
    linked: bool = False
    used: str = ""
    day: str = ""
    licence: str = ""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def title(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def owner(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def sound(self) -> bool:
        """Whether it can be loaded."""
        return not self.broken and not self.problem


class Shelf(QObject):
    changed = Signal()
    failed = Signal(str)
    progressed = Signal(str, float)
    """Of verifying: the model's name, and 0 … 1."""
    verified = Signal(str, int)
    """Its name, and how many of its files are damaged."""

    def __init__(self, services: Services, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.models: tuple[Kept, ...] = ()
        self.known = False
        """Whether it was looked up yet."""
        self.loaded: Path | None = None
        self.verifying = ""
        """The name of the model whose files are being read."""
        self._services = services
        self._tasks = tasks
        self._last_used = LastUsed(services.last_used)
        self._looking = Cancel()
        self._reading = Cancel()

    def refresh(self) -> None:
        self._looking.set()
        self._looking = self._tasks.run(self._look, self._found, self._fail)

    def find(self, name: str) -> Kept | None:
        return next((kept for kept in self.models if kept.name == name), None)

    def is_loaded(self, kept: Kept) -> bool:
        return self.loaded is not None and kept.path in (self.loaded, *self.loaded.parents)

    def set_loaded(self, path: Path | None) -> None:
        """Which model answers now; from when on it counts as used."""
        self.loaded = path
        if path is not None:
            self._tasks.run(lambda _: self._last_used.used(path), lambda _: self.refresh())
        self.changed.emit()

    def remove(self, kept: Kept) -> None:
        def work(_: Cancel) -> None:
            from registry.removing import remove

            remove(self._services.library(), kept.model)

        self._tasks.run(work, lambda _: self.refresh(), self._fail)

    def verify(self, kept: Kept) -> None:
        """Read all of it again; a second one waits for nobody: it takes the place of the first."""
        folder, every = kept.folder, Every(INTERVAL)
        if folder is None:
            return

        def told(progress: Progress) -> None:
            if every.due():
                self.progressed.emit(kept.name, progress.done / max(progress.total, 1))

        def work(cancel: Cancel) -> int:
            from registry.downloads.verify import verify

            return len(verify(folder, told, cancel))

        self.stop_verifying()
        self.verifying = kept.name
        self._reading = self._tasks.run(work, lambda broken: self._verified(kept.name, broken), self._not_verified)
        self.changed.emit()

    def stop_verifying(self) -> None:
        self._reading.set()
        if self.verifying:
            self.verifying = ""
            self.changed.emit()

    def _look(self, _: Cancel) -> tuple[Kept, ...]:
        from registry.provenance import FILE, read_provenance
        from registry.removing import damaged

        library, days = self._services.library(), self._last_used.days()
        library.require_there()
        found = [
            Kept(model, model.path, model.nbytes, problem=model.problem, linked=model.linked)
            for model in (*library.list(), *library.absent())
        ]
        found += [Kept(model, model.folder, model.nbytes, broken=model.files) for model in damaged(library)]
        told = []
        for kept in sorted(found, key=lambda kept: kept.title.casefold()):
            folder = kept.path if kept.path.is_dir() else kept.path.parent
            used = days.get(str(kept.path), "")
            if not kept.linked and (folder / FILE).is_file() and (origin := read_provenance(folder)) is not None:
                kept = replace(kept, folder=folder, day=origin.day, licence=origin.licence)
            told.append(replace(kept, used=used))
        return tuple(told)

    def _found(self, models: tuple[Kept, ...]) -> None:
        self.models, self.known = models, True
        self.changed.emit()

    def _verified(self, name: str, broken: int) -> None:
        self.verifying = ""
        self.verified.emit(name, broken)
        self.refresh()

    def _not_verified(self, sentence: str, _: BaseException) -> None:
        self.verifying = ""
        self.failed.emit(sentence)
        self.changed.emit()

    def _fail(self, sentence: str, _: BaseException) -> None:
        self.failed.emit(sentence)
