"""Renders every state of the window, light and dark, at one and two pixels a point:

    python -m tests.gui.screenshots FOLDER [PART OF A NAME …]

The pictures are for looking at: no test compares them. Only the engine is missing; what it would say is said by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SCALES = ("1", "2")
RENDERED = "SCREENSHOTS_SCALE"
"""Set in the process that renders."""
SCREEN = (1920, 1440)
"""Points, which hold every window and what opens from it."""


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.gui.screenshots", str(folder), *arguments[1:]]
    with tempfile.TemporaryDirectory() as home:
        for scale in SCALES:
            screen = Path(home) / "screen.json"
            screen.write_text(json.dumps({"screens": [screen_of(int(scale))]}))
            platform = f"offscreen:configfile={screen}"
            environment = {**os.environ, "QT_QPA_PLATFORM": platform, "QT_SCALE_FACTOR": scale, RENDERED: scale}
            subprocess.run(command, env=environment, check=True)
    return 0


def screen_of(scale: int) -> dict[str, object]:
    """As Qt's offscreen platform wants to be told of one, in pixels."""
    width, height = SCREEN
    dots = {"logicalDpi": 96, "logicalBaseDpi": 96, "dpr": 1}
    return {"name": "screen", "x": 0, "y": 0, "width": scale * width, "height": scale * height, **dots}


def render(folder: Path, parts: Sequence[str], scale: str) -> int:
    from PySide6.QtCore import QCoreApplication, QEvent, QSize, Qt
    from PySide6.QtGui import QPainter, QPixmap
    from PySide6.QtWidgets import QApplication

    from app.application import make_application, open_settings
    from app.bridge import Bridge
    from app.look import Appearance
    from app.window import Window
    from tests.gui.picture_states import picture_states
    from tests.gui.silent_engine import load_silent
    from tests.gui.states import settle, states

    application = make_application(["screenshots"])
    appearance = Appearance(application)
    with tempfile.TemporaryDirectory() as home:
        for dark in (False, True):
            scheme = Qt.ColorScheme.Dark if dark else Qt.ColorScheme.Light
            application.styleHints().colorSchemeChanged.emit(scheme)
            for name, arrange in (*states(), *picture_states()):
                if parts and not any(part in name for part in parts):
                    continue
                window = Window(Bridge(load_silent), appearance, open_settings(Path(home) / "window.ini"))
                window.resize(960, 720)
                window.show()
                arrange(window)
                settle(application.processEvents, 0.05)
                picture = window.grab()
                if (popup := QApplication.activePopupWidget()) is not None:
                    at = window.mapFromGlobal(popup.pos())
                    whole = QPixmap(
                        picture.deviceIndependentSize()
                        .toSize()
                        .expandedTo(QSize(at.x() + popup.width(), at.y() + popup.height()))
                        * picture.devicePixelRatio()
                    )
                    whole.setDevicePixelRatio(picture.devicePixelRatio())
                    whole.fill(Qt.GlobalColor.gray)
                    with QPainter(whole) as painter:
                        painter.drawPixmap(0, 0, picture)
                        painter.drawPixmap(at, popup.grab())
                    picture = whole
                    popup.close()
                picture.save(str(folder / f"{name}-{'dark' if dark else 'light'}-{scale}x.png"))
                window.close()
                window.deleteLater()
                QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return 0


if __name__ == "__main__":
    if scale := os.environ.get(RENDERED):
        sys.exit(render(Path(sys.argv[1]), sys.argv[2:], scale))
    sys.exit(main(sys.argv[1:]))
