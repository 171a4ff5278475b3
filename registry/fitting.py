"""Models fitted to a machine by where they lie: here, or elsewhere, known by the beginnings of their files.

found = fit_of(Remote(Hub.from_environment(), offer, Headers(folder)), Budgets(), Here(models, measurements))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from engine.cancel import Cancel
from engine.errors import MillstreamError, UnsupportedModelError, naming
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.info import model_info
from engine.memory.figures import Drive
from engine.memory.machine import kept_drive, real_memory
from engine.planning import Machine, pending, this_machine
from engine.types import Budgets, ModelInfo
from engine.vision.eyes import Eyes, find_eyes
from registry.fit import Fit, Fitter, answer
from registry.headers import Headers, Told
from registry.items import CHECKPOINT, Offer
from registry.probe.reading import measure as measure_drive
from registry.probe.tree import Gpu
from registry.sources.source import Source


class Place(Protocol):
    """A machine to fit models to."""

    @property
    def cancel(self) -> Cancel:
        """Ends what takes time."""
        ...

    @property
    def gpus(self) -> Sequence[Gpu]:
        """Its cards, as a probe tells of them."""
        ...

    def machine(self, index: TensorIndex, info: ModelInfo, budgets: Budgets) -> Machine:
        """As it is now, for one model."""
        ...


@dataclass(frozen=True)
class Here:
    """This machine, with the folder that models are kept in and the file of what was measured.

    What was not measured yet is measured where a plan depends on it, in some seconds, unless `measure` is false.
    """

    models: Path
    measurements: Path | None
    cancel: Cancel = field(default_factory=Cancel)
    measure: bool = True
    gpus: Sequence[Gpu] = ()

    def machine(self, index: TensorIndex, info: ModelInfo, budgets: Budgets) -> Machine:
        """As it is now, for a model that is here or elsewhere."""
        elsewhere = bool(index.sizes)
        found = this_machine(
            index,
            info,
            budgets,
            self.measurements,
            loading=not self.measure,
            place=self._place if elsewhere or not self.measure else None,
            cancel=self.cancel,
        )
        # Whether anything is measured or not, the tokenizer is not in memory yet.
        found = replace(found, pending=pending(info), overhead=real_memory() + pending(info))
        return replace(found, drive=self._drive) if elsewhere and self.measure else found

    @property
    def _place(self) -> Path:
        """What is there of the folder and those above it."""
        return next(path for path in (self.models, *self.models.parents) if path.exists() or path == path.parent)

    def _drive(self) -> Drive | None:
        if (known := kept_drive(self._place, self.measurements)) is not None:
            return known
        try:
            return measure_drive(self.models, self.measurements, self.cancel)
        except MillstreamError:  # it is full, or refuses: nothing is foretold then
            return None


class Lying(Protocol):
    """A model by where it lies."""

    def open(self, cancel: Cancel) -> tuple[TensorIndex, Eyes | None]:
        """What there is to plan with. Raises what each kind says."""
        ...


@dataclass(frozen=True)
class Local:
    """A model that is here: a file, or a checkpoint's folder. It sees with `mmproj`, or with the tower beside it.

    `open` raises as `engine.plan`, but no BudgetError.
    """

    path: Path
    mmproj: Path | None = None

    def open(self, cancel: Cancel) -> tuple[TensorIndex, Eyes | None]:
        index = open_index(self.path)
        return index, find_eyes(index, self.mmproj)


@dataclass(frozen=True)
class Remote:
    """A model that is elsewhere, of which the beginnings of its files are had; `told` as in `Headers.fetch`. It sees
    with the tower of `mmproj`, which is here, or with the offer's first.

    `open` raises UnsupportedModelError for an offer that cannot be loaded, DownloadError and StorageError where the
    beginnings cannot be had, `Cancelled`, and what `Local` raises.
    """

    source: Source
    offer: Offer
    headers: Headers
    mmproj: Path | None = None
    told: Told | None = None

    def open(self, cancel: Cancel) -> tuple[TensorIndex, Eyes | None]:
        offer = self.offer
        if offer.problem:
            raise UnsupportedModelError(offer.problem)
        begun = self.headers.fetch(self.source, offer.files, cancel, self.told)
        first = begun.paths[0]
        index = open_index(first.parent if offer.kind == CHECKPOINT else first, begun.sizes)
        if offer.kind == CHECKPOINT or self.mmproj is not None:
            return index, find_eyes(index, self.mmproj)
        towers = [path for path, file in zip(begun.paths, offer.files, strict=True) if file in offer.towers]
        return index, next(_fitting(index, towers), None)


def fitter_of(model: Lying, budgets: Budgets, place: Place, *, unloading: int = 0) -> Fitter:
    """For a model on a machine; `budgets` choose its threads, and `unloading` is as in `Fitter`. Raises as the model's
    `open`, and as `Fitter`."""
    index, eyes = model.open(place.cancel)
    with naming(*(path.name for path in index.paths)):
        info = model_info(index)
    return Fitter(index, eyes, place.machine(index, info, budgets), unloading=unloading, gpus=place.gpus)


def fit_of(model: Lying, budgets: Budgets, place: Place, *, unloading: int = 0) -> Fit:
    """As `fitter_of`, for one answer: what cannot be opened cannot run. Raises DownloadError, StorageError and
    `Cancelled`."""
    return answer(lambda: fitter_of(model, budgets, place, unloading=unloading), budgets)


def _fitting(text: TensorIndex, towers: Sequence[Path]) -> Iterator[Eyes]:
    """Those that belong to the model, as `find_eyes` tries those beside it."""
    for path in towers:
        with contextlib.suppress(MillstreamError):
            yield Eyes(path, text)
