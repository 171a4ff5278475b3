"""The engine in this process: find the model or fetch it, then load it."""

from __future__ import annotations

import logging
from pathlib import Path

from app.budgets.chosen import ChosenBudgets
from app.engine_protocol import ChatEngine
from app.places import budgets_file, measurements_file
from app.requests import Fetching, Loading, Report
from engine.cancel import Cancel
from engine.types import Budgets, Plan

STARTER = "starter"

log = logging.getLogger(__name__)


def load_local(model: str, report: Report, cancel: Cancel, budgets: Budgets | None = None) -> ChatEngine:
    """The `EngineLoader` of the program. `model` is a path, "starter", or a name in the library. Without `budgets` it
    may use what a person chose for it, where that is still there.

    What it needs is imported here, in the engine's thread, so that the window need not wait for it.
    """
    from engine.errors import BudgetError, SettingsError
    from registry import starter
    from registry.library import Library

    library = Library.default()
    if model == STARTER:
        path = starter.ensure(
            library, lambda progress: report(Fetching(progress.what, progress.done, progress.total)), cancel
        )
    else:
        path = library.resolve(model)
    tower = library.tower_of(path)
    chosen = None if budgets is not None else ChosenBudgets(budgets_file()).of(path)
    if chosen is None:
        return _opened(path, tower, budgets, report, cancel)
    try:
        return _opened(path, tower, chosen, report, cancel)
    except (BudgetError, SettingsError) as error:
        # There may be less memory than there was then.
        log.info("%s cannot use what was chosen for it: %s", path, error)
        return _opened(path, tower, None, report, cancel)


def _opened(path: Path, tower: Path | None, budgets: Budgets | None, report: Report, cancel: Cancel) -> ChatEngine:
    from engine import Engine, plan

    measurements = measurements_file()
    if not measurements.exists():
        report(Loading("Measuring this machine", 0, 0))
        plan(path, budgets, mmproj=tower, measurements=measurements, cancel=cancel)
        cancel.check()
    report(Loading("Opening the model", 0, 0))
    how: Plan | None = None

    def planned(made: Plan) -> None:
        nonlocal how
        cancel.check()
        how = made
        report(Loading("Opening the model", 0, 0, how))

    return Engine.load(
        path,
        budgets,
        mmproj=tower,
        planned=planned,
        progress=lambda progress: report(Loading(progress.what, progress.done, progress.total, how)),
        cancel=cancel,
        measurements=measurements,
    )
