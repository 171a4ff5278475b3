"""Where a message is written: a field that grows with it, and the button that sends it or stops the reply."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent, QTextBlock, QTextBlockFormat, QTextCursor, QTextFormat
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from app.icons import icon
from app.look import Look, centred, label, set_property
from app.stylesheet import COLUMN, SCROLL_BAR

MOST_LINES = 8
CONTEXT_NEARLY_FULL = 0.8
LONGEST_BLOCK = 2000
"""Characters. Every key lays its whole block out again, and a word without end takes time with its square."""


class Composer(QWidget):
    """Enter sends, Shift+Enter breaks the line. While a reply is made, the button stops it."""

    sent = Signal(str)
    stopped = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._ready = False
        self._busy = False
        self._context = label(level="small", tone="muted")
        self._context.setMinimumHeight(look.type.line_height)  # empty or not, nothing moves
        self._hint = label(self.tr("The reply is still being written; Esc stops it."), level="small", tone="muted")
        self._hint.setMinimumHeight(look.type.line_height)

        self._frame = QFrame()
        self._frame.setObjectName("composer")
        self.draft = Draft()
        self.draft.submitted.connect(self._on_enter)
        self.draft.textChanged.connect(self._refresh)
        self.draft.focus_changed.connect(lambda focused: set_property(self._frame, "focused", focused))

        self.send_button = QToolButton()
        self.send_button.setProperty("filled", True)
        self.send_button.setAccessibleName(self.tr("Send"))
        self.send_button.setToolTip(self.tr("Send (Enter)"))
        self.send_button.clicked.connect(self._send)
        self.stop_button = QToolButton()
        self.stop_button.setProperty("outlined", True)
        self.stop_button.setAccessibleName(self.tr("Stop"))
        self.stop_button.setToolTip(self.tr("Stop (Esc)"))
        self.stop_button.clicked.connect(self.stopped)
        for button in (self.send_button, self.stop_button):
            button.setIconSize(QSize(20, 20))
            button.setFixedSize(36, 36)

        row = QHBoxLayout(self._frame)
        row.setContentsMargins(12, 4, 4, 4)
        row.setSpacing(8)
        row.addWidget(self.draft, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.send_button, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.stop_button, 0, Qt.AlignmentFlag.AlignBottom)

        column = QWidget()
        lines = QVBoxLayout(column)
        lines.setContentsMargins(16, 0, 4, 0)
        lines.setSpacing(4)
        lines.addWidget(self._frame)
        for below in (self._context, self._hint):
            lines.addWidget(below, 0, Qt.AlignmentFlag.AlignRight)
        outer = centred(column, COLUMN)
        outer.setContentsMargins(1, 8, SCROLL_BAR + 1, 8)
        self.setLayout(outer)
        self.apply_look(look)
        self._show_hint(False)
        self._refresh()

    def set_ready(self, ready: bool) -> None:
        """Whether there is a model that can answer."""
        self._ready = ready
        self._refresh()

    def set_busy(self, busy: bool) -> None:
        """Whether a reply is being made."""
        self._busy = busy
        self.stop_button.setEnabled(True)
        self._show_hint(False)
        self._refresh()

    def show_stopping(self) -> None:
        """The wish to stop is on its way; the engine has not said yet that it has."""
        self._keep_focus(self.stop_button)
        self.stop_button.setEnabled(False)

    def show_context(self, used: int, total: int) -> None:
        """How full the context is, in tokens."""
        share = used / total if total else 0.0
        percent = f"{round(share * 100)} %"
        nearly_full = share >= CONTEXT_NEARLY_FULL
        text = self.tr("Context nearly full: {percent}") if nearly_full else self.tr("Context {percent}")
        self._context.setText(text.format(percent=percent) if used else "")
        self._context.setToolTip(
            self.tr("{used} of {total} tokens: what the model can keep in mind at once").format(used=used, total=total)
        )
        set_property(self._context, "tone", "warn" if nearly_full else "muted")

    @property
    def hint(self) -> str:
        """Why Enter did nothing, in the place of the context."""
        return "" if self._hint.isHidden() else self._hint.text()

    @property
    def context(self) -> str:
        """What is said of the context."""
        return self._context.text()

    def apply_look(self, look: Look) -> None:
        self.send_button.setIcon(icon("send", 20, look.theme.on_accent, look.theme.muted))
        self.stop_button.setIcon(icon("stop", 20, look.theme.text, look.theme.muted))
        self.draft.fit_height()

    def _can_send(self) -> bool:
        return self._ready and not self._busy and not self.draft.is_blank()

    def _on_enter(self) -> None:
        self._show_hint(self._busy and not self.draft.is_blank())
        self._send()

    def _show_hint(self, shown: bool) -> None:
        leaves, comes = (self._context, self._hint) if shown else (self._hint, self._context)
        leaves.hide()
        comes.show()

    def _send(self) -> None:
        if self._can_send():
            text = self.draft.toPlainText().strip()
            self.draft.clear()
            self.sent.emit(text)

    def _keep_focus(self, button: QToolButton) -> None:
        """A button that goes away leaves the focus to the field, not to whatever comes next."""
        if button.hasFocus():
            self.draft.setFocus()

    def _refresh(self) -> None:
        self._keep_focus(self.send_button if self._busy else self.stop_button)
        leaves, comes = (self.send_button, self.stop_button) if self._busy else (self.stop_button, self.send_button)
        leaves.hide()  # first: to show a widget lays its row out at once, with both in it
        comes.show()
        self.send_button.setEnabled(self._can_send())


class Draft(QPlainTextEdit):
    """The message being written, one to eight lines tall.

    A paragraph too long for one block lies in several. The later ones carry the property SEAM, and the text, whole or
    copied, has no line break before them.
    """

    SEAM = QTextFormat.Property.UserProperty.value

    submitted = Signal()
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

    def insertFromMimeData(self, source: QMimeData) -> None:
        if source.hasText() and not self.isReadOnly():
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
