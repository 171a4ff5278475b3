"""What is pasted or dropped, as far as it is pictures."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMimeData
from PySide6.QtGui import QImage

Source = Path | bytes | QImage
"""A file, a picture as it would lie in one, or pixels."""

_ENCODED = ("image/png", "image/jpeg", "image/webp")


def carries_pictures(data: QMimeData) -> bool:
    """Whether it is files, or a picture. Text that is also drawn as one, as from a spreadsheet, stays text."""
    drawn = data.hasImage() or any(map(data.hasFormat, _ENCODED))
    return bool(_files(data)) or (drawn and not data.hasFormat("text/plain"))


def pictures_in(data: QMimeData) -> list[Source]:
    if files := _files(data):
        return list(files)
    for form in _ENCODED:
        if data.hasFormat(form):
            return [data.data(form).data()]
    image = data.imageData()
    return [image] if isinstance(image, QImage) and not image.isNull() else []


def as_png(image: QImage) -> bytes:
    encoded = QByteArray()
    buffer = QBuffer(encoded)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return encoded.data()


def _files(data: QMimeData) -> list[Path]:
    return [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
