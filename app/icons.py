"""The icons of `resources/icons`, drawn in a colour of the theme."""

from __future__ import annotations

from importlib import resources

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPaintEvent, QPixmap
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QWidget

SCREEN_SCALES = (1, 1.25, 1.5, 1.75, 2, 2.5, 3)
PROGRAM_SIZES = (16, 20, 24, 32, 40, 48, 64, 128, 256)


def draw(name: str, pixels: int, color: str = "#000000") -> QPixmap:
    """The icon, `pixels` square, its `currentColor` replaced by `color`."""
    drawn = QPixmap(pixels, pixels)
    drawn.fill(QColor(Qt.GlobalColor.transparent))
    painter = QPainter(drawn)
    _renderer(name, color).render(painter)
    painter.end()
    return drawn


def icon(name: str, size: int, color: str, disabled: str | None = None) -> QIcon:
    """An icon shown at `size` logical pixels, drawn for each usual scale of a screen, so that none is resampled."""
    made = QIcon()
    for scale in SCREEN_SCALES:
        pixels = round(size * scale)
        made.addPixmap(draw(name, pixels, color))
        if disabled is not None:
            made.addPixmap(draw(name, pixels, disabled), QIcon.Mode.Disabled)
    return made


def program_icon() -> QIcon:
    made = QIcon()
    for pixels in PROGRAM_SIZES:
        made.addPixmap(draw("millstream", pixels))
    return made


class Picture(QWidget):
    """An icon that is only looked at, drawn for whatever scale the screen has."""

    def __init__(self, name: str, size: int, color: str = "#000000") -> None:
        super().__init__()
        self._name = name
        self.setFixedSize(size, size)
        self.set_color(color)

    def set_color(self, color: str) -> None:
        self._renderer = _renderer(self._name, color)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        self._renderer.render(painter, QRectF(self.rect()))
        painter.end()


def _renderer(name: str, color: str) -> QSvgRenderer:
    svg = (resources.files("resources") / "icons" / f"{name}.svg").read_text(encoding="utf-8")
    return QSvgRenderer(QByteArray(svg.replace("currentColor", color).encode()))
