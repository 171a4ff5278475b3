"""What the page works with: the library, the Hub, and what says how a model would run. No Qt.

All of it blocks, and belongs off the window's thread. What is heavy to import is imported there, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from app.budgets.chosen import ChosenBudgets
from app.budgets.estimate import Estimator
from app.models_page.fitness import Fitness
from app.models_page.late_hub import LateHub
from app.models_page.suggestion import Suggestion
from app.places import budgets_file, headers_folder, last_used_file, measurements_file
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.catalogue import Entry
    from registry.fitting import Here
    from registry.items import Offer
    from registry.library import Library, LibraryModel
    from registry.machine import MachineFacts
    from registry.probe import Probe
    from registry.progress import Progress
    from registry.sources.source import Source

How = Literal["reference", "copy"]
Bring = Callable[[Path, How, Callable[["Progress"], None], Cancel], "LibraryModel"]


class Oracle(Protocol):
    """Says what suits this machine."""

    def suggestions(self, cancel: Cancel) -> tuple[Suggestion, ...]:
        """Models of the catalogue, the one to take first. Raises SettingsError where there is none for this machine."""
        ...

    def fit(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Fitness:
        """How an offer would run, once the model that is loaded now has given back so many bytes. Raises DownloadError
        where that cannot be known without the source."""
        ...

    def estimator(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Estimator:
        """The same under whatever budgets, for as long as `cancel` lets it."""
        ...

    def estimator_kept(self, model: Path, unloading: int, cancel: Cancel) -> Estimator:
        """Of a model that is here: a file, or the folder of a checkpoint."""
        ...

    def room(self, cancel: Cancel) -> int:
        """Bytes of memory that a model may take; 0 where nobody knows."""
        ...

    def machine(self, cancel: Cancel) -> Probe:
        """What it is, looked at anew."""
        ...

    def measure(self, progress: Callable[[Progress], None], cancel: Cancel) -> None:
        """Have the speed of the drive of the models be known from now on. Raises StorageError, ModelFileError."""
        ...


@dataclass(frozen=True)
class Services:
    """`library` may look at the disk when it is called; `source` is asked for repositories and files. `renew` has the
    source look for an access token anew. `bring` has a model of this machine in the library, as `import_model` does."""

    library: Callable[[], Library]
    source: Source
    oracle: Oracle
    renew: Callable[[], None]
    last_used: Path
    bring: Bring
    margin: int | None = None
    """Bytes of the disk that downloads leave free; None for the usual."""
    chosen: ChosenBudgets = field(default_factory=lambda: ChosenBudgets(budgets_file()))
    """What each model may use."""
    settings: Path | None = None
    """The file that says where the models are; None for the person's own."""

    @property
    def rate(self) -> Path:
        """The file that says how fast downloads may be, beside the others that a person's choices are kept in."""
        return self.last_used.with_name("downloads.json")


def own_services() -> Services:
    """The person's own library, the Hub, and this machine."""

    def library() -> Library:
        from registry.library import Library

        return Library.default()

    hub = LateHub()
    return Services(library, hub, ThisMachine(library), hub.renew, last_used_file(), bringing(library))


def bringing(library: Callable[[], Library]) -> Bring:
    """Imports into a library."""

    def bring(path: Path, how: How, progress: Callable[[Progress], None], cancel: Cancel) -> LibraryModel:
        from registry.importing import import_model

        return import_model(path, library(), how, progress, cancel)

    return bring


class ThisMachine:
    """An `Oracle` from the catalogue, a probe, which is kept from the first question on, and the engine's plan."""

    def __init__(self, library: Callable[[], Library]) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._fitting = threading.Lock()
        """Held by one at a time: what is measured must not be measured twice at once."""
        self._entries: tuple[Entry, ...] = ()
        self._probe: Probe | None = None

    def suggestions(self, cancel: Cancel) -> tuple[Suggestion, ...]:
        from app.models_page.suggesting import suggest

        return suggest(self.catalogue(), self.facts(cancel))

    def fit(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Fitness:
        """From the beginnings of its files, which are fetched where they are not kept."""
        from app.models_page.suggesting import told
        from engine.types import Budgets
        from registry.fitting import Remote, fit_of
        from registry.headers import Headers

        model = Remote(source, offer, Headers(headers_folder()))
        with self._fitting:
            return told(fit_of(model, Budgets(), self._here(cancel), unloading=unloading))

    def estimator(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Estimator:
        from engine.types import Budgets
        from registry.fit import Fitter
        from registry.fitting import Remote, fitter_of
        from registry.headers import Headers

        def make(threads: int | None) -> Fitter:
            model = Remote(source, offer, Headers(headers_folder()))
            return fitter_of(model, Budgets(threads=threads), self._here(cancel), unloading=unloading)

        return Estimator(make, self._fitting)

    def estimator_kept(self, model: Path, unloading: int, cancel: Cancel) -> Estimator:
        from engine.types import Budgets
        from registry.fit import Fitter
        from registry.fitting import Local, fitter_of

        def make(threads: int | None) -> Fitter:
            kept = Local(model, self._library().tower_of(model))
            return fitter_of(kept, Budgets(threads=threads), self._here(cancel), unloading=unloading)

        return Estimator(make, self._fitting)

    def room(self, cancel: Cancel) -> int:
        return self.facts(cancel).room

    def machine(self, cancel: Cancel) -> Probe:
        from registry.probe import probe

        found = probe(self._library().root, measurements_file(), cancel)
        with self._lock:
            self._probe = found
        return found

    def measure(self, progress: Callable[[Progress], None], cancel: Cancel) -> None:
        from registry.probe import measure

        library = self._library()
        library.require_writable()
        with self._fitting:
            measure(library.root, measurements_file(), cancel, progress)

    def catalogue(self) -> tuple[Entry, ...]:
        from registry.catalogue import catalogue

        self._entries = self._entries or catalogue()
        return self._entries

    def facts(self, cancel: Cancel) -> MachineFacts:
        """What a choice goes by."""
        from registry.machine import facts

        return facts(self._probed(cancel))

    def _here(self, cancel: Cancel) -> Here:
        from registry.fitting import Here

        return Here(self._library().root, measurements_file(), cancel, gpus=self._probed(cancel).gpus)

    def _probed(self, cancel: Cancel) -> Probe:
        from registry.probe import probe

        with self._lock:
            if self._probe is None:
                self._probe = probe(self._library().root, measurements_file(), cancel)
            return self._probe
