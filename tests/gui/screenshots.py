"""Renders every state of the window, light and dark, at one and two pixels a point:

    python -m tests.gui.screenshots FOLDER [PART OF A NAME …]

The pictures are for looking at: no test compares them. Only the engine is missing; what it would say is said by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SCALES = ("1", "2")
RENDERED = "SCREENSHOTS_SCALE"
"""Set in the process that renders."""


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for scale in SCALES:
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": scale, RENDERED: scale}
        command = [sys.executable, "-m", "tests.gui.screenshots", str(folder), *arguments[1:]]
        subprocess.run(command, env=environment, check=True)
    return 0


def render(folder: Path, parts: Sequence[str], scale: str) -> int:
    from PySide6.QtCore import QCoreApplication, QEvent, Qt
    from PySide6.QtGui import QPainter
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
                    with QPainter(picture) as painter:
                        painter.drawPixmap(window.mapFromGlobal(popup.pos()), popup.grab())
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
