"""What the scripts that render pictures share: a process for each density of the screen, light and dark, and popups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtGui import QPixmap
    from PySide6.QtWidgets import QApplication, QWidget

SCALES = tuple(os.environ.get("ONLY_SCALES", "1 2").split())
"""Pixels a point."""
RENDERED = "SCREENSHOTS_SCALE"
"""Set in the process that renders."""
SCREEN = (1920, 1440)
"""Points, which hold every window and what opens from it."""


def run(
    module: str, render: Callable[[Path, Sequence[str], str], int], arguments: Sequence[str], *, own_home: bool = False
) -> int:
    """Have a script, which is this `module`, render into the folder that the first argument names, in a process for
    each scale. `render` is given that folder, the other arguments and the scale. With `own_home` the models and all
    else of a person's are in a folder of their own."""
    folder = Path(arguments[0])
    if scale := os.environ.get(RENDERED):
        return render(folder, arguments[1:], scale)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for scale in SCALES:
            screen = Path(home) / "screen.json"
            screen.write_text(json.dumps({"screens": [_screen(int(scale))]}))
            platform = f"offscreen:configfile={screen}"
            environment = {**os.environ, "QT_QPA_PLATFORM": platform, "QT_SCALE_FACTOR": scale, RENDERED: scale}
            if own_home:
                environment["MILLSTREAM_HOME"] = home
            subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=True)
    return 0


def _screen(scale: int) -> dict[str, object]:
    """As Qt's offscreen platform wants to be told of one, in pixels."""
    width, height = SCREEN
    dots = {"logicalDpi": 96, "logicalBaseDpi": 96, "dpr": 1}
    return {"name": "screen", "x": 0, "y": 0, "width": scale * width, "height": scale * height, **dots}


def schemes(application: QApplication) -> Iterator[str]:
    """ "light", then "dark": the system has changed to it."""
    from PySide6.QtCore import Qt

    for name, scheme in (("light", Qt.ColorScheme.Light), ("dark", Qt.ColorScheme.Dark)):
        application.styleHints().colorSchemeChanged.emit(scheme)
        yield name


def grabbed(window: QWidget) -> QPixmap:
    """The window, and what has popped up over it, which is closed."""
    from PySide6.QtCore import QSize, Qt
    from PySide6.QtGui import QPainter, QPixmap
    from PySide6.QtWidgets import QApplication

    picture = window.grab()
    popup = QApplication.activePopupWidget()
    if popup is None:
        return picture
    at = window.mapFromGlobal(popup.pos())
    size = picture.deviceIndependentSize().toSize()
    whole = QPixmap(
        size.expandedTo(QSize(at.x() + popup.width(), at.y() + popup.height())) * picture.devicePixelRatio()
    )
    whole.setDevicePixelRatio(picture.devicePixelRatio())
    whole.fill(Qt.GlobalColor.gray)
    with QPainter(whole) as painter:
        painter.drawPixmap(0, 0, picture)
        painter.drawPixmap(at, popup.grab())
    popup.close()
    return whole


def end(window: QWidget) -> None:
    """Close the window, and have it gone."""
    from PySide6.QtCore import QCoreApplication, QEvent

    window.close()
    window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
