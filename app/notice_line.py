"""A sentence that asks for attention: a sign, and small text that wraps however long its words are."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.icons import Picture
from app.look import Look, breakable, label


class NoticeLine(QWidget):
    """Hidden while there is nothing to say."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.sentence = ""
        self._sign = Picture("warning", 16, look.theme.warn)
        self._text = label(level="small", tone="warn", wrap=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 8, 0, 4)
        row.setSpacing(8)
        row.addWidget(self._sign, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self._text, 1)
        self.hide()

    def show_sentence(self, sentence: str) -> None:
        self.sentence = sentence
        self._text.setText(breakable(sentence))
        self._text.setAccessibleName(sentence)
        self.setVisible(bool(sentence))

    def apply_look(self, look: Look) -> None:
        self._sign.set_color(look.theme.warn)
