"""The look in force, following the system's light and dark, and the few helpers that widgets share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QWidget

from app.stylesheet import palette, style_sheet
from app.theme import Theme, TypeScale, load_theme

_LONG_WORD = re.compile(r"\S{24}(?=\S)")


@dataclass(frozen=True)
class Look:
    theme: Theme
    type: TypeScale


class Appearance(QObject):
    """Dresses the application, and again whenever the system turns light or dark; then says so."""

    changed = Signal(object)

    def __init__(self, application: QApplication, scale: TypeScale | None = None) -> None:
        super().__init__(application)
        self._application = application
        self._scale = scale or TypeScale()
        hints = application.styleHints()
        hints.colorSchemeChanged.connect(self._apply)
        self._apply(hints.colorScheme())

    def _apply(self, scheme: Qt.ColorScheme) -> None:
        self.look = Look(load_theme("dark" if scheme == Qt.ColorScheme.Dark else "light"), self._scale)
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        font.setPixelSize(self._scale.body)
        self._application.setFont(font)
        self._application.setPalette(palette(self.look.theme))
        self._application.setStyleSheet(style_sheet(self.look.theme, self._scale))
        self.changed.emit(self.look)


def label(text: str = "", *, level: str = "", tone: str = "", wrap: bool = False) -> QLabel:
    """A label of plain text; `level` and `tone` name its size and its colour in the style sheet."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(wrap)
    if level:
        made.setProperty("level", level)
    if tone:
        made.setProperty("tone", tone)
    return made


def breakable(text: str) -> str:
    """The same with places for a line to end in long words, which the path of a file may be: a label breaks lines at a
    zero-width space, but within no word."""
    return _LONG_WORD.sub("\\g<0>\u200b", text)


def set_property(widget: QWidget, name: str, value: object) -> None:
    """Change a property that the style sheet looks at."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def centred(widget: QWidget, width: int) -> QHBoxLayout:
    """A row with the widget in the middle, as wide as there is room, up to `width`."""
    widget.setMaximumWidth(width)
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.addStretch(1)
    row.addWidget(widget, 1000)
    row.addStretch(1)
    return row
