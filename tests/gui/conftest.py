"""Real windows for the tests: one application, and windows that are closed, thread and all, when a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.application import make_application, open_settings
from app.bridge import Bridge
from app.engine_protocol import EngineLoader
from app.local_engine import load_local
from app.look import Appearance
from app.window import Window
from tests.gui.dropped import png

MakeWindow = Callable[..., Window]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A warning from Qt fails the test, but for those that the offscreen platform gives whenever a window is shown."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.qt_log_level_fail("WARNING"))
            item.add_marker(pytest.mark.qt_log_ignore("This plugin does not support"))


@pytest.fixture(scope="session")
def qapp() -> Iterator[QApplication]:
    """In place of pytest-qt's: the program's own."""
    yield make_application(["millstream"])


@pytest.fixture(scope="session")
def appearance(qapp: QApplication) -> Appearance:
    return Appearance(qapp)


@pytest.fixture
def make_window(qtbot: QtBot, appearance: Appearance, folder: Path) -> Iterator[MakeWindow]:
    """Shows a window over a loader, by default the program's own."""
    windows: list[Window] = []

    def make(load: EngineLoader = load_local) -> Window:
        window = Window(Bridge(load), appearance, open_settings(folder / "window.ini"))
        windows.append(window)
        window.show()
        qtbot.waitExposed(window)
        return window

    yield make
    for window in windows:
        window.close()
        assert not window.bridge.running
        window.deleteLater()


@pytest.fixture
def mill(folder: Path) -> Path:
    """A picture."""
    path = folder / "mill é.png"
    path.write_bytes(png())
    return path


class Heartbeat:
    """Counts how often the event loop comes round, at most a thousand times a second."""

    def __init__(self) -> None:
        self.beats = 0
        self._timer = QTimer(interval=1, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def _beat(self) -> None:
        self.beats += 1


@pytest.fixture
def heartbeat(qapp: QApplication) -> Heartbeat:
    return Heartbeat()
