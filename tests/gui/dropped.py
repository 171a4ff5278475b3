"""Pictures for the tests of the window, and how they come."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image as pillow
from PySide6.QtCore import QMimeData, QUrl
from pytestqt.qtbot import QtBot

from app.composer import Composer


def png(color: str = "red", width: int = 60, height: int = 40) -> bytes:
    file = io.BytesIO()
    pillow.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def files(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def wait_until_read(composer: Composer, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not composer.pictures.reading)
