"""One turn of the conversation: who speaks, what, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QLocale, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QToolButton, QVBoxLayout, QWidget

from app.attachment import Attachment
from app.flow import Flow
from app.icons import icon
from app.look import Look, label
from app.text_pane import TextPane
from app.thumbnail import ALONE, BESIDE_OTHERS, Thumbnail

COPIED_SHOWN_MS = 1500
SHOWN_AT_FIRST = 4000
SHOWN_MORE = 20_000
"""Characters: of a text given whole, however long, no more than this is laid out at once."""


class MessageView(QFrame):
    """A turn with its text, which may grow, and a button that copies it.

    What the text looks like is this class's own matter; others give it whole (`set_text`) or by pieces
    (`append_text`), and get it back as it was given. Of a long text given whole, only the beginning is shown; a button
    brings more of it.
    """

    caret_moved = Signal(QWidget, QRect)

    def __init__(self, turn: Literal["user", "model"], author: str, look: Look) -> None:
        super().__init__()
        self._look = look
        self._text: list[str] = []
        self._pictures: list[Thumbnail] = []
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
        self._shown = 0
        self.more_button = QPushButton()
        self.more_button.clicked.connect(self._show_more)
        self.lines.addWidget(self.more_button, 0, Qt.AlignmentFlag.AlignLeft)
        self._count_the_rest()

        if turn == "user":
            self.body.setAccessibleName(self.tr("Your message"))
            self.copy_button.setAccessibleName(self.tr("Copy your message"))
        else:
            self.body.setAccessibleName(self.tr("Reply from {name}").format(name=author))
            self.copy_button.setAccessibleName(self.tr("Copy the reply"))

    @property
    def stops(self) -> tuple[QWidget, ...]:
        """Where Tab goes, as it is read."""
        return self.body, self.more_button, self.copy_button

    @property
    def text(self) -> str:
        return "".join(self._text)

    def set_text(self, text: str) -> None:
        self._text = [text]
        # A little over the limit is not worth a button.
        self._shown = SHOWN_AT_FIRST if len(text) > 2 * SHOWN_AT_FIRST else len(text)
        self.body.set_text(text[: self._shown])
        self._count_the_rest()

    def set_pictures(self, pictures: Sequence[Attachment]) -> None:
        """Show pictures above the text, which may be none."""
        most = ALONE if len(pictures) == 1 else BESIDE_OTHERS
        row = QWidget()
        flow = Flow(row, 8)
        flow.setContentsMargins(1, 0, 0, 4)
        self._pictures = [Thumbnail(self._look, picture, most=most) for picture in pictures]
        for thumbnail in self._pictures:
            flow.addWidget(thumbnail)
        self.lines.insertWidget(self.lines.indexOf(self.body), row)
        self.body.setVisible(bool(self.text))
        self.copy_button.setEnabled(bool(self.text))

    def append_text(self, text: str) -> None:
        self._text.append(text)
        self.body.append_text(text)

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.body.apply_look(look)
        for thumbnail in self._pictures:
            thumbnail.apply_look(look)
        self._show_copy()

    def _show_more(self) -> None:
        start, self._shown = self._shown, self._shown + SHOWN_MORE
        self.body.append_text(self.text[start : self._shown])
        if self.more_button.hasFocus() and self._shown >= len(self.text):
            self.body.setFocus()
        self._count_the_rest()

    def _count_the_rest(self) -> None:
        rest = len(self.text) - self._shown
        self.more_button.setVisible(rest > 0)
        self.more_button.setText(self.tr("Show more · {n} characters left").format(n=QLocale().toString(max(rest, 0))))

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
