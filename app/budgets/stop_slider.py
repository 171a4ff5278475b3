"""A slider that stands at one of a row of values, with a mark below the recommended one."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QPen, QPolygonF, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QSlider

from app.budgets.stops import nearest
from app.look import Look

HEIGHT = 28
HANDLE = 7.0
"""Pixels of its radius."""
GROOVE = 4.0
MIDDLE = 11.0
PAGES = 10
"""Page keys go from one end to the other in so many steps."""


class StopSlider(QSlider):
    """`chosen` tells of a value that a person moved it to, `back` that they want the recommended one again."""

    chosen = Signal(object)  # bytes are more than an int of C++ holds
    back = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self._look = look
        self.stops: tuple[int, ...] = (0,)
        self.mark = 0
        """The value that is recommended."""
        self._telling = True
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.valueChanged.connect(self._moved)

    @property
    def stop(self) -> int:
        """The value that it stands at."""
        return self.stops[self.value()]

    def set_stops(self, stops: tuple[int, ...], mark: int) -> None:
        """What it can stand at, in order. It stays at the value that is nearest to the present one."""
        if (stops, mark) != (self.stops, self.mark):
            value = self.stop
            self.stops, self.mark = stops, mark
            self._telling = False
            self.setRange(0, len(stops) - 1)
            self.setPageStep(max(len(stops) // PAGES, 1))
            self.setValue(nearest(stops, value))
            self._telling = True
            self.update()

    def show_value(self, value: int) -> None:
        """Stand at the stop that is nearest, without telling."""
        self._telling = False
        self.setValue(nearest(self.stops, value))
        self._telling = True

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(160, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, HEIGHT)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self._move_to(event.position().x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.isSliderDown():
            self._move_to(event.position().x())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.setSliderDown(False)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.back.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """A page that is scrolled must not change what lies under the pointer."""
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, enabled = self._look.theme, self.isEnabled()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        left, right, at = HANDLE + 1, self.width() - HANDLE - 1, self._x(self.value())
        painter.setBrush(QColor(theme.border))
        painter.drawRoundedRect(QRectF(left, MIDDLE - GROOVE / 2, right - left, GROOVE), GROOVE / 2, GROOVE / 2)
        strong = QColor(theme.accent if enabled else theme.muted)
        if len(self.stops) > 1:
            painter.setBrush(strong)
            painter.drawRoundedRect(QRectF(left, MIDDLE - GROOVE / 2, at - left, GROOVE), GROOVE / 2, GROOVE / 2)
            self._draw_mark(painter)
            painter.setBrush(QColor(theme.raised) if enabled else QColor(theme.code))
            painter.setPen(QPen(strong, 2))
            painter.drawEllipse(QPointF(at, MIDDLE), HANDLE - 1, HANDLE - 1)
            if self.hasFocus():
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(strong)
                painter.drawEllipse(QPointF(at, MIDDLE), HANDLE, HANDLE)
                painter.setBrush(QColor(theme.raised))
                painter.drawEllipse(QPointF(at, MIDDLE), 2.5, 2.5)
        painter.end()

    def _draw_mark(self, painter: QPainter) -> None:
        x, top = self._x(nearest(self.stops, self.mark)), MIDDLE + HANDLE + 2
        painter.setBrush(QColor(self._look.theme.muted))
        painter.drawPolygon(QPolygonF([QPointF(x, top), QPointF(x + 4, top + 6), QPointF(x - 4, top + 6)]))

    def _x(self, number: int) -> float:
        left, right = HANDLE + 1, self.width() - HANDLE - 1
        return left + (right - left) * number / max(len(self.stops) - 1, 1)

    def _move_to(self, x: float) -> None:
        left, right = HANDLE + 1, self.width() - HANDLE - 1
        share = (x - left) / max(right - left, 1.0)
        number = round(min(max(share, 0.0), 1.0) * (len(self.stops) - 1))
        if number == self.value():
            self.chosen.emit(self.stop)  # where nothing was chosen before, a click chooses what it stands at
        self.setValue(number)

    def _moved(self, _: int) -> None:
        if self._telling:
            self.chosen.emit(self.stop)
