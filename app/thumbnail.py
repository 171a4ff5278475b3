"""A picture shown small, sharp at whatever scale the screen has."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QToolButton, QWidget

from app.attachment import Attachment
from app.icons import icon
from app.look import Look
from app.stylesheet import CORNER
from engine.units import human_bytes

SQUARE = 64
ALONE = QSize(240, 180)
BESIDE_OTHERS = QSize(200, 112)
"""The most that a picture takes."""
SMALLEST = 32


class Thumbnail(QWidget):
    """An empty square until the picture is known.

    One that can be removed stays a square, filled by the middle of the picture; any other has the picture's shape.
    """

    removed = Signal()

    def __init__(
        self, look: Look, attachment: Attachment | None = None, *, most: QSize = ALONE, removable: bool = False
    ) -> None:
        super().__init__()
        self._most = most
        self._look = look
        self._image = QImage()
        self._drawn = QImage()
        self._removable = removable
        self.attachment: Attachment | None = None
        self.setFixedSize(SQUARE, SQUARE)
        self.setAccessibleName(self.tr("A picture that is being read"))
        if removable:
            self.remove_button = QToolButton(self)
            self.remove_button.setProperty("badge", True)
            self.remove_button.setIconSize(QSize(12, 12))
            self.remove_button.setFixedSize(22, 22)
            self.remove_button.move(SQUARE - 22 - 2, 2)
            self.remove_button.setToolTip(self.tr("Remove"))
            self.remove_button.setAccessibleName(self.tr("Remove the picture"))
            self.remove_button.clicked.connect(self.removed)
        self.apply_look(look)
        if attachment is not None:
            self.show_picture(attachment)

    def show_picture(self, attachment: Attachment) -> None:
        self.attachment = attachment
        width, height = attachment.preview_width, attachment.preview_height
        self._image = QImage(attachment.preview, width, height, 3 * width, QImage.Format.Format_RGB888).copy()
        self._drawn = QImage()
        name = attachment.image.name
        self.setAccessibleName(self.tr("Picture: {name}").format(name=name))
        self.setToolTip(f"{name}\n{attachment.width} × {attachment.height} · {human_bytes(len(attachment.image.data))}")
        if self._removable:
            self.remove_button.setAccessibleName(self.tr("Remove {name}").format(name=name))
        else:
            shape = QSize(attachment.width, attachment.height)
            if shape.boundedTo(self._most) != shape:
                shape = shape.scaled(self._most, Qt.AspectRatioMode.KeepAspectRatio)
            self.setFixedSize(shape.expandedTo(QSize(SMALLEST, SMALLEST)))
        self.update()

    def apply_look(self, look: Look) -> None:
        self._look = look
        if self._removable:
            self.remove_button.setIcon(icon("close", 12, look.theme.text))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        frame = QPainterPath()
        frame.addRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), CORNER - 2, CORNER - 2)
        painter.fillPath(frame, QColor(self._look.theme.code))
        if not self._image.isNull():
            painter.setClipPath(frame)
            drawn = self._scaled()
            size = drawn.deviceIndependentSize()
            painter.drawImage(QRectF(self.rect()).center() - QRectF(0, 0, size.width(), size.height()).center(), drawn)
            painter.setClipping(False)
        painter.setPen(QPen(QColor(self._look.theme.border), 1))
        painter.drawPath(frame)
        painter.end()

    def _scaled(self) -> QImage:
        """The picture in the screen's own pixels; a small one is not made larger."""
        scale = self.devicePixelRatio()
        wanted = QSize(round(self.width() * scale), round(self.height() * scale))
        if self._drawn.isNull() or self._drawn.devicePixelRatio() != scale:
            mode = (
                Qt.AspectRatioMode.KeepAspectRatioByExpanding if self._removable else Qt.AspectRatioMode.KeepAspectRatio
            )
            size = self._image.size().scaled(wanted, mode)
            natural = self._image.size() * scale
            if size.width() > natural.width():
                size = natural
            size = size.expandedTo(QSize(1, 1))
            self._drawn = self._image.scaled(
                size, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
            )
            self._drawn.setDevicePixelRatio(scale)
        return self._drawn
