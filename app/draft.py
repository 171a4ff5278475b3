"""The field in which a message is written: it grows with the text, and stays quick however long that gets."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent, QTextBlock, QTextBlockFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import QFrame, QPlainTextEdit

from app.incoming import carries_pictures

MOST_LINES = 8
LONGEST_BLOCK = 2000
"""Characters. Every key lays its whole block out again, and a word without end takes time with its square."""


class Draft(QPlainTextEdit):
    """The message being written, one to eight lines tall.

    A paragraph too long for one block lies in several. The later ones carry the property SEAM, and the text, whole or
    copied, has no line break before them.
    """

    SEAM = QTextFormat.Property.UserProperty.value

    submitted = Signal()
    pictures_offered = Signal(QMimeData)
    """What was pasted or dropped is pictures, or files that may be."""
    focus_changed = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("draft")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setPlaceholderText(self.tr("Message…"))
        self.setAccessibleName(self.tr("Message"))
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().documentLayout().documentSizeChanged.connect(self.fit_height)

    def toPlainText(self) -> str:
        return _joined(_blocks(self.document().firstBlock()))

    def setPlainText(self, text: str) -> None:
        super().setPlainText("")
        self.insertPlainText(text)
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def insertPlainText(self, text: str) -> None:
        cursor = self.textCursor()
        cursor.beginEditBlock()
        cursor.removeSelectedText()
        for index, part in enumerate(_parts(text.replace("\r\n", "\n").replace("\r", "\n"))):
            if index:
                cursor.insertBlock(_seam())
            first, line_break, rest = part.partition("\n")
            cursor.insertText(first)
            if line_break:  # not by insertText, with which a block after a seam would be one more
                cursor.insertBlock(QTextBlockFormat())
                cursor.insertText(rest)
        cursor.endEditBlock()
        self.setTextCursor(cursor)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return carries_pictures(source) or source.hasText()

    def insertFromMimeData(self, source: QMimeData) -> None:
        if carries_pictures(source):
            self.pictures_offered.emit(source)
        elif source.hasText() and not self.isReadOnly():
            self.insertPlainText(source.text())
            self.ensureCursorVisible()

    def createMimeDataFromSelection(self) -> QMimeData:
        cursor = self.textCursor()
        first = self.document().findBlock(cursor.selectionStart())
        data = QMimeData()
        data.setText(_joined(_blocks(first), cursor.selectionStart(), cursor.selectionEnd()))
        return data

    def is_blank(self) -> bool:
        return all(not block.text().strip() for block in _blocks(self.document().firstBlock()))

    def fit_height(self) -> None:
        """One to eight lines, as the text needs."""
        lines = max(1, min(MOST_LINES, round(self.document().size().height())))
        margins = 2 * self.document().documentMargin() + 2 * self.frameWidth()
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines == MOST_LINES else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        # One pixel more at each end, or the field takes its last line for one that does not fit.
        self.setFixedHeight(ceil(lines * self._line_height() + margins) + 2)

    def _line_height(self) -> float:
        """As laid out, which may be more than the font asks for."""
        last = self.document().lastBlock()
        # The document's lower margin counts as part of its last block.
        return (self.blockBoundingRect(last).height() - self.document().documentMargin()) / max(1, last.lineCount())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            super().keyPressEvent(event)
        elif event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            self.submitted.emit()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit_height()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.fit_height()


def _seam() -> QTextBlockFormat:
    made = QTextBlockFormat()
    made.setProperty(Draft.SEAM, True)
    return made


def _parts(text: str) -> Iterator[str]:
    """The text cut where a paragraph would be too long for one block, after a space where there is one."""
    start = line_start = 0
    while line_start <= len(text):
        line_end = text.find("\n", line_start)
        line_end = len(text) if line_end < 0 else line_end
        while line_end - line_start > LONGEST_BLOCK:
            space = text.rfind(" ", line_start + LONGEST_BLOCK // 2, line_start + LONGEST_BLOCK)
            line_start = space + 1 if space >= 0 else line_start + LONGEST_BLOCK
            yield text[start:line_start]
            start = line_start
        line_start = line_end + 1
    yield text[start:]


def _blocks(block: QTextBlock) -> Iterator[QTextBlock]:
    """This block and those after it."""
    while block.isValid():
        yield block
        block = block.next()


def _joined(blocks: Iterator[QTextBlock], start: int = 0, end: int | None = None) -> str:
    """The text of the blocks between two positions of the document, which count in UTF-16."""
    texts: list[str] = []
    for block in blocks:
        at = block.position()
        if end is not None and at > end:
            break
        if texts and not block.blockFormat().boolProperty(Draft.SEAM):
            texts.append("\n")
        text = block.text()
        if at < start or (end is not None and end < at + block.length() - 1):
            units = text.encode("utf-16-le", "surrogatepass")
            units = units[2 * max(0, start - at) : None if end is None else 2 * (end - at)]
            text = units.decode("utf-16-le", "surrogatepass")
        texts.append(text)
    return "".join(texts)
