"""One turn of the conversation: who speaks, what, and how it went."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRect, QSize, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from app.icons import icon
from app.look import Look, label
from app.text_pane import TextPane

COPIED_SHOWN_MS = 1500


class MessageView(QFrame):
    """A turn with its text, which may grow, and a button that copies it.

    What the text looks like is this class's own matter; others give it whole (`set_text`) or by pieces
    (`append_text`), and get it back as it was given.
    """

    caret_moved = Signal(QWidget, QRect)

    def __init__(self, turn: Literal["user", "model"], author: str, look: Look) -> None:
        super().__init__()
        self._look = look
        self._text: list[str] = []
        self.setProperty("turn", turn)
        self.body = TextPane(look)
        self.body.caret_moved.connect(lambda caret: self.caret_moved.emit(self.body, caret))

        name = label(author, level="author", tone="muted" if turn == "user" else "accent")
        name.setIndent(1)  # in line with the text, which has a border
        self.copy_button = QToolButton()
        self.copy_button.setIconSize(QSize(16, 16))
        self.copy_button.clicked.connect(self._copy)
        self._copied = QTimer(self, singleShot=True, interval=COPIED_SHOWN_MS)
        self._copied.timeout.connect(self._show_copy)
        self._show_copy()

        header = QHBoxLayout()
        header.setContentsMargins(0, 0, 0, 0)
        header.addWidget(name, 1)
        header.addWidget(self.copy_button)
        self.lines = QVBoxLayout(self)
        self.lines.setContentsMargins(16, 8, 8, 12)
        self.lines.setSpacing(4)
        self.lines.addLayout(header)
        self.lines.addWidget(self.body)

        if turn == "user":
            self.body.setAccessibleName(self.tr("Your message"))
            self.copy_button.setAccessibleName(self.tr("Copy your message"))
        else:
            self.body.setAccessibleName(self.tr("Reply from {name}").format(name=author))
            self.copy_button.setAccessibleName(self.tr("Copy the reply"))

    @property
    def text(self) -> str:
        return "".join(self._text)

    def set_text(self, text: str) -> None:
        self._text = [text]
        self.body.set_text(text)

    def append_text(self, text: str) -> None:
        self._text.append(text)
        self.body.append_text(text)

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.body.apply_look(look)
        self._show_copy()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text)
        self._draw_button("check", self.tr("Copied"))
        self._copied.start()

    def _show_copy(self) -> None:
        self._draw_button("copy", self.tr("Copy"))

    def _draw_button(self, name: str, tip: str) -> None:
        self.copy_button.setIcon(icon(name, 16, self._look.theme.muted))
        self.copy_button.setToolTip(tip)
        self.copy_button.setAccessibleDescription(tip)
