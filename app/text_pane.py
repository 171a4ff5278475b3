"""Text that is read and selected, as tall as it is long."""

from __future__ import annotations

import re
from math import ceil

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtGui import QTextBlockFormat, QTextCursor, QTextOption, QWheelEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextEdit

from app.look import Look

LONGEST_WORD = 1000
_WORD_WITHOUT_END = re.compile(rf"[^\s\u2e80-\uffff]{{{LONGEST_WORD}}}")
"""Of a script that puts spaces between words. Looking for where such a word breaks takes time with its square."""


class TextPane(QTextEdit):
    """Plain text in a document of its own. Appending lays out only the last paragraph again.

    It never scrolls: its height is that of its text, and the wheel goes to the pane around it.
    """

    caret_moved = Signal(QRect)
    """The caret, in this widget's coordinates: the pane around it keeps it in view."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self.setObjectName("body")
        self.setReadOnly(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._tail = ""
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        self.cursorPositionChanged.connect(self._say_where_the_caret_is)
        self.apply_look(look)

    def apply_look(self, look: Look) -> None:
        spaced = QTextBlockFormat()
        spaced.setLineHeight(look.type.line_height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        everything = QTextCursor(self.document())
        everything.select(QTextCursor.SelectionType.Document)
        everything.mergeBlockFormat(spaced)
        self._fit_height()

    def set_text(self, text: str) -> None:
        everything = QTextCursor(self.document())
        everything.select(QTextCursor.SelectionType.Document)
        self._tail = ""
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._look_for_a_word_without_end(text)
        everything.insertText(text)

    def append_text(self, text: str) -> None:
        self._look_for_a_word_without_end(text)
        before = self.textCursor()
        anchor, position = before.anchor(), before.position()
        end = QTextCursor(self.document())
        end.movePosition(QTextCursor.MoveOperation.End)
        end.insertText(text)
        # A caret or a selection that touched the end must not move or grow with what came after it.
        if (self.textCursor().anchor(), self.textCursor().position()) != (anchor, position):
            before.setPosition(anchor)
            before.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
            self.setTextCursor(before)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.height())

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def _look_for_a_word_without_end(self, text: str) -> None:
        text = self._tail + text
        if _WORD_WITHOUT_END.search(text):
            self.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)
        self._tail = text[-LONGEST_WORD:]

    def _fit_height(self) -> None:
        self.setFixedHeight(ceil(self.document().size().height()) + 2 * self.frameWidth())

    def _say_where_the_caret_is(self) -> None:
        if self.hasFocus():
            self.caret_moved.emit(self.cursorRect())
