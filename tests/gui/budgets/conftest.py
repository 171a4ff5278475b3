"""Sliders over real models, and a window over a library of them whose settings are its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.application import open_settings
from app.bridge import Bridge
from app.budgets.estimate import Estimator
from app.budgets.panel import BudgetPanel
from app.local_engine import load_local
from app.look import Appearance
from app.models_page.late_hub import LateHub
from app.models_page.services import Services, ThisMachine, bringing
from app.models_page.tasks import Tasks
from app.places import measurements_file
from app.window import Window
from engine.cancel import Cancel
from engine.types import Budgets
from registry.library import Library
from tests.tiny_chat import write_tiny_chat

WAIT = 20_000


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests before have measured of this machine."""
    return tmp_path_factory.mktemp("measured") / "measurements.json"


@pytest.fixture
def home(folder: Path, measured: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where all that is kept goes, with an empty library in it."""
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    (folder / "models").mkdir()
    (folder / "cache").mkdir()
    if measured.exists():
        shutil.copy(measured, measurements_file())
    yield folder
    if measurements_file().exists():
        shutil.copy(measurements_file(), measured)


@pytest.fixture
def tiny(home: Path) -> Path:
    """In the library."""
    return write_tiny_chat(home / "models" / "Tiny.gguf")


@pytest.fixture
def broad(home: Path) -> Path:
    """One of which much can be left on disk."""
    return write_tiny_chat(home / "models" / "Broad.gguf", ffn=4096, layers=4)


@dataclass
class Sliders:
    panel: BudgetPanel
    machine: ThisMachine
    qtbot: QtBot

    def open(self, model: Path, chosen: Budgets | None = None) -> BudgetPanel:
        def opened(cancel: Cancel) -> tuple[Estimator, Budgets | None]:
            return self.machine.estimator_kept(model, 0, cancel), chosen

        self.panel.open(opened)
        self.settle()
        return self.panel

    def settle(self) -> None:
        self.qtbot.waitUntil(lambda: self.panel.settled, timeout=WAIT)


@pytest.fixture
def sliders(home: Path, qtbot: QtBot, appearance: Appearance) -> Iterator[Sliders]:
    tasks = Tasks(threads=1)
    panel = BudgetPanel(tasks, appearance.look)
    qtbot.addWidget(panel)
    panel.resize(400, 500)
    panel.show()
    yield Sliders(panel, ThisMachine(lambda: Library(home / "models")), qtbot)
    tasks.close()


@pytest.fixture
def open_window(home: Path, appearance: Appearance, qtbot: QtBot) -> Iterator[Callable[[], Window]]:
    """Opens a window; one after the other is as one start of the program after the other."""
    windows: list[Window] = []

    def library() -> Library:
        return Library(home / "models")

    def make() -> Window:
        source = LateHub()
        used = home / "last-used.json"
        services = Services(library, source, ThisMachine(library), source.renew, used, bringing(library), margin=0)
        window = Window(Bridge(load_local), appearance, open_settings(home / "window.ini"), services)
        window.resize(1280, 800)
        windows.append(window)
        window.show()
        qtbot.waitExposed(window)
        return window

    yield make
    for window in windows:
        window.close()
        assert not window.bridge.running
        window.deleteLater()
