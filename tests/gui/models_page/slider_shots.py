"""Renders the budget sliders over models that are there, light and dark, at one and two pixels a point:

    python -m tests.gui.models_page.slider_shots FOLDER MODEL.gguf …

The pictures are for looking at: no test compares them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.gui.rendering import end, grabbed, run, schemes

if TYPE_CHECKING:
    from app.budgets.panel import BudgetPanel
    from app.look import Appearance
    from app.window import Window

SHOWN = "labs/Shown-135M-Instruct-GGUF"
SIZES = ((1280, 860), (420, 760))


def render(folder: Path, named: Sequence[str], scale: str) -> int:
    from pytest import MonkeyPatch

    from app.application import make_application
    from app.look import Appearance
    from tests.gui.states import pump
    from tests.hub_server import HubServer

    models = [Path(name) for name in named]
    application = make_application(["screenshots"])
    appearance = Appearance(application)
    shelf = Path(os.environ["MILLSTREAM_HOME"]) / "models"
    shelf.mkdir(exist_ok=True)
    for model in models:
        if not (shelf / model.name).exists():
            (shelf / model.name).symlink_to(model)
    with HubServer() as hub, MonkeyPatch.context() as patch:
        hub.use(patch)
        hub.add(SHOWN, {"Shown-135M-Instruct-Q4_1.gguf": models[0].read_bytes()}, licence="apache-2.0", downloads=900)
        for scheme in schemes(application):
            for width, height in SIZES:
                for model in models:
                    for name, arrange in states():
                        whole = f"sliders-{name}-{model.stem[:7].lower()}-{width}-{scheme}-{scale}x"
                        if os.environ.get("ONLY_STATES", "") in whole:
                            window = _window(appearance, shelf, width, height)
                            arrange(window, model)
                            pump(0.1)
                            grabbed(window).save(str(folder / f"{whole}.png"))
                            end(window)
    return 0


def _window(appearance: Appearance, shelf: Path, width: int, height: int) -> Window:
    from app.application import open_settings
    from app.bridge import Bridge
    from app.local_engine import load_local
    from app.models_page.late_hub import LateHub
    from app.models_page.services import Services, ThisMachine, bringing
    from app.window import Window
    from registry.library import Library

    def library() -> Library:
        return Library(shelf)

    home, source = shelf.parent, LateHub()
    services = Services(
        library, source, ThisMachine(library), source.renew, home / "last-used.json", bringing(library), margin=0
    )
    window = Window(Bridge(load_local), appearance, open_settings(home / "window.ini"), services)
    window.resize(width, height)
    window.show()
    return window


def _wait(condition: Callable[[], object], seconds: float = 40.0) -> None:
    import time

    from tests.gui.states import pump

    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        pump(0.05)
    assert condition(), "it never came"


def _settle(panel: BudgetPanel) -> None:
    _wait(lambda: panel.settled)


def _library(window: Window, model: Path) -> BudgetPanel:
    page = window.models.page
    window.models.show()
    page.show_part("library")
    _wait(lambda: page.library.rows.rowCount())
    key = next(
        page.library.rows.row(number).key
        for number in range(page.library.rows.rowCount())
        if model.stem in page.library.rows.row(number).key
    )
    page.library.list.choose(key)
    page.library.opened.emit(key)
    _settle(page.model.budgets)
    return page.model.budgets


def library(window: Window, model: Path) -> None:
    _library(window, model)


def library_less(window: Window, model: Path) -> None:
    panel = _library(window, model)
    slider = panel.memory.slider
    slider.setFocus()
    slider.setValue(len(slider.stops) // 5)
    _settle(panel)


def library_cannot(window: Window, model: Path) -> None:
    panel = _library(window, model)
    panel.context.slider.setValue(len(panel.context.slider.stops) - 1)
    panel.memory.slider.setValue(0)
    _settle(panel)


def popover(window: Window, model: Path) -> None:
    window.chat.load(str(model))
    _wait(lambda: window.chat.state == "ready")
    window.model_bar.show_placement()
    window.model_bar.placement.change_button.click()
    panel = window.budgets.changing.panel
    _settle(panel)
    panel.context.slider.setValue(4)
    _settle(panel)


def offer(window: Window, model: Path) -> None:
    """Of a model that is on the Hub."""
    page = window.models.page
    window.models.show()
    page.show_part("search")
    page.search.field.setText("Shown")
    page.search.search()
    _wait(lambda: page.search.rows.number_of(SHOWN) >= 0)
    page.search.list.choose(SHOWN)
    page.search.opened.emit(SHOWN)
    _wait(lambda: page.repository.table.rowCount())
    page.repository.budgets.button.click()
    panel = page.repository.budgets.panel
    _settle(panel)
    panel.memory.slider.setValue(30)
    _settle(panel)


def states() -> Iterator[tuple[str, Callable[[Window, Path], None]]]:
    for arrange in (library, library_less, library_cannot, popover, offer):
        yield arrange.__name__.replace("_", "-"), arrange


if __name__ == "__main__":
    sys.exit(run("tests.gui.models_page.slider_shots", render, sys.argv[1:], own_home=True))
