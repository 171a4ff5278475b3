"""The engine in this process: find the model or fetch it, then load it."""

from __future__ import annotations

from app.engine_protocol import ChatEngine
from app.places import measurements_file
from app.requests import Fetching, Loading, Report
from engine.cancel import Cancel
from engine.types import Budgets, Plan

STARTER = "starter"


def load_local(model: str, report: Report, cancel: Cancel, budgets: Budgets | None = None) -> ChatEngine:
    """The `EngineLoader` of the program. `model` is a path, "starter", or a name in the library.

    What it needs is imported here, in the engine's thread, so that the window need not wait for it.
    """
    from engine import Engine, plan
    from registry import starter
    from registry.library import Library

    library = Library.default()
    if model == STARTER:
        path = starter.ensure(
            library, lambda progress: report(Fetching(progress.what, progress.done, progress.total)), cancel
        )
    else:
        path = library.resolve(model)
    measurements, tower = measurements_file(), library.tower_of(path)
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
