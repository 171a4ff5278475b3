"""What is in the library, as the window knows it: looked up in a thread, told by a signal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.models_page.last_used import LastUsed
from app.models_page.services import Services
from app.models_page.standing import Standing, stand
from app.models_page.tasks import Tasks
from app.throttle import Every
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.library import LibraryModel
    from registry.progress import Progress

INTERVAL = 0.1


@dataclass(frozen=True)
class Kept:
    """A model of the library. `folder` is that of one which Millstream downloaded, so that it can be verified; `broken`
    are those of its files that are damaged, for which it cannot be loaded; `problem` says what else keeps it from that.
    `linked`: it lies elsewhere. `used` and `day` are days, "" where they are not known: when it was loaded last, and
    when it came."""

    model: LibraryModel
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
    returned = Signal()
    """The drive of the library is there again."""
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
        self.standing: Standing | None = None
        """Of the library's folder; None until it was looked up."""
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
        """Which model answers now."""
        self.loaded = path
        self.changed.emit()

    def remove(self, kept: Kept) -> None:
        self._tasks.run(lambda _: self._services.library().remove(kept.name), lambda _: self.refresh(), self._fail)

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

    @property
    def missing(self) -> bool:
        """Whether the drive of the library is gone, so that nobody knows what is on it."""
        return self.standing is not None and self.standing.state == "missing"

    def _look(self, _: Cancel) -> tuple[Standing, tuple[Kept, ...]]:
        library, days = self._services.library(), self._last_used.days()
        standing = stand(library, self._services.settings)
        if standing.state == "missing":
            return standing, ()
        found = (_kept(model, days.get(str(model.path), "")) for model in library.known())
        return standing, tuple(sorted(found, key=lambda kept: kept.title.casefold()))

    def _found(self, found: tuple[Standing, tuple[Kept, ...]]) -> None:
        former = self.standing
        self.standing, self.models = found
        self.known = True
        if former is not None and former.state == "missing" != self.standing.state:
            self.returned.emit()
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


def _kept(model: LibraryModel, used: str) -> Kept:
    """With what the note in its folder says of where it is from, where there is one."""
    from registry.provenance import FILE, read_provenance

    kept = Kept(model, model.path, model.nbytes, problem=model.problem, linked=model.linked, used=used)
    folder = model.place
    if model.linked or not (folder / FILE).is_file() or (origin := read_provenance(folder)) is None:
        return kept
    broken = [file.name for file in origin.files if file.damaged or _size(folder / file.name) != file.nbytes]
    # What is told of broken files is more than that there are some.
    problem = "" if broken else kept.problem
    return replace(kept, folder=folder, broken=tuple(broken), problem=problem, day=origin.day, licence=origin.licence)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
