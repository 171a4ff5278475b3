"""What the page works with: the library, the Hub, and what says how a model would run. No Qt.

All of it blocks, and belongs off the window's thread. What is heavy to import is imported there, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from app.models_page.fitness import Fitness
from app.models_page.late_hub import LateHub
from app.models_page.suggestion import Suggestion
from app.places import last_used_file, measurements_file
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.catalogue import Entry
    from registry.items import Offer
    from registry.library import Library, LibraryModel
    from registry.machine import MachineFacts
    from registry.progress import Progress
    from registry.sources.source import Source

How = Literal["reference", "copy"]
Bring = Callable[[Path, How, Callable[["Progress"], None], Cancel], "LibraryModel"]


class Oracle(Protocol):
    """Says what suits this machine."""

    def suggestions(self, cancel: Cancel) -> tuple[Suggestion, ...]:
        """Models of the catalogue, the one to take first. Raises SettingsError where there is none for this machine."""
        ...

    def fit(self, source: Source, offer: Offer, cancel: Cancel) -> Fitness:
        """How an offer would run. Raises DownloadError where that cannot be known without the source."""
        ...

    def room(self, cancel: Cancel) -> int:
        """Bytes of memory that a model may take; 0 where nobody knows."""
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
    """An `Oracle` from the catalogue and a probe, which is made once, with the first question, unless it is `known`."""

    def __init__(self, library: Callable[[], Library], known: MachineFacts | None = None) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._known = known
        self._entries: tuple[Entry, ...] = ()

    def suggestions(self, cancel: Cancel) -> tuple[Suggestion, ...]:
        from app.models_page.suggesting import suggest

        return suggest(self._catalogue(), self._facts(cancel))

    def fit(self, source: Source, offer: Offer, cancel: Cancel) -> Fitness:
        from app.models_page.suggesting import roughly

        return roughly(offer, self._catalogue(), self._facts(cancel))

    def room(self, cancel: Cancel) -> int:
        return self._facts(cancel).room

    def _catalogue(self) -> tuple[Entry, ...]:
        from registry.catalogue import catalogue

        self._entries = self._entries or catalogue()
        return self._entries

    def _facts(self, cancel: Cancel) -> MachineFacts:
        from registry.machine import facts
        from registry.probe import probe

        with self._lock:
            if self._known is None:
                self._known = facts(probe(self._library().root, measurements_file(), cancel))
            return self._known
