"""The sign of how a model runs: a shape for each kind, so that colour is never all that tells them apart."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.models_page.fitness import UNKNOWN, Fitness, Kind
from app.theme import Theme

SIDE = 12
"""Pixels."""
STROKE = 1.75


def draw_mark(painter: QPainter, corner: QPointF, kind: Kind, color: QColor) -> None:
    """A full disc for the GPU, a ring with a dot for memory, half a disc for the disk, a cross for what cannot run."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    whole = QRectF(corner.x(), corner.y(), SIDE, SIDE)
    ring = whole.adjusted(STROKE / 2, STROKE / 2, -STROKE / 2, -STROKE / 2)
    pen = QPen(color, STROKE)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    painter.setPen(pen)
    if kind == "cannot":
        cross = whole.adjusted(2, 2, -2, -2)
        painter.drawLine(cross.topLeft(), cross.bottomRight())
        painter.drawLine(cross.topRight(), cross.bottomLeft())
    else:
        if kind == "unknown":
            pen.setStyle(Qt.PenStyle.DotLine)
            painter.setPen(pen)
        painter.drawEllipse(ring)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        if kind == "gpu":
            painter.drawEllipse(ring)
        elif kind == "memory":
            painter.drawEllipse(whole.adjusted(3.5, 3.5, -3.5, -3.5))
        elif kind == "disk":
            painter.drawPie(ring, -90 * 16, -180 * 16)
    painter.restore()


class FitMark(QWidget):
    """The sign alone; what it means stands beside it in words."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._fitness = UNKNOWN
        self.setFixedSize(QSize(SIDE, SIDE))

    def set_fitness(self, fitness: Fitness) -> None:
        self._fitness = fitness
        self.update()

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        draw_mark(painter, QPointF(0, 0), self._fitness.kind, QColor(getattr(self._theme, self._fitness.role)))
        painter.end()
