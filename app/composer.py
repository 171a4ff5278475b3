"""Where a message is written: its text, its pictures, and the button that sends it or stops the reply."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from app.choosing import choose_pictures
from app.draft import Draft
from app.icons import icon
from app.incoming import Source, carries_pictures, pictures_in
from app.look import Look, centred, label, set_property
from app.notice_line import NoticeLine
from app.picture_tray import PictureTray
from app.stylesheet import COLUMN, SCROLL_BAR

CONTEXT_NEARLY_FULL = 0.8


class Composer(QWidget):
    """Enter sends, Shift+Enter breaks the line. While a reply is made, the button stops it."""

    sent = Signal(str, tuple)
    """The text, and the Attachments that go with it."""
    stopped = Signal()
    pictures_changed = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._ready = False
        self._busy = False
        self._obstacle = ""
        self._refusals: list[str] = []
        self._context = label(level="small", tone="muted")
        self._context.setMinimumHeight(look.type.line_height)  # empty or not, nothing moves
        self._hint = label(level="small", tone="muted")
        self._hint.setMinimumHeight(look.type.line_height)

        self._frame = QFrame()
        self._frame.setObjectName("composer")
        self.draft = Draft()
        self.draft.submitted.connect(self._on_enter)
        self.draft.pictures_offered.connect(self.take)
        self.draft.textChanged.connect(self._refresh)
        self.draft.focus_changed.connect(lambda focused: set_property(self._frame, "focused", focused))

        self.pictures = PictureTray(look)
        self.pictures.changed.connect(self._on_pictures)
        self.pictures.refused.connect(self._refuse)
        self.notice = NoticeLine(look)

        self.attach_button = QToolButton()
        self.attach_button.setAccessibleName(self.tr("Add pictures"))
        self.attach_button.setToolTip(self.tr("Add pictures, or drop or paste them here"))
        self.attach_button.clicked.connect(self._choose)
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
        for button in (self.attach_button, self.send_button, self.stop_button):
            button.setIconSize(QSize(20, 20))
            button.setFixedSize(36, 36)

        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.attach_button, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.draft, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.send_button, 0, Qt.AlignmentFlag.AlignBottom)
        row.addWidget(self.stop_button, 0, Qt.AlignmentFlag.AlignBottom)

        inside = QVBoxLayout(self._frame)
        inside.setContentsMargins(4, 4, 4, 4)
        inside.setSpacing(0)
        for above in (self.pictures, self.notice):
            indented = QHBoxLayout()
            indented.setContentsMargins(8, 0, 8, 0)
            indented.addWidget(above)
            inside.addLayout(indented)
        inside.addLayout(row)

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
        self._show_hint()
        self._refresh()

    def set_ready(self, ready: bool) -> None:
        """Whether there is a model that can answer."""
        self._ready = ready
        self._refresh()

    def set_busy(self, busy: bool) -> None:
        """Whether a reply is being made."""
        self._busy = busy
        self.stop_button.setEnabled(True)
        self._show_hint()
        self._refresh()

    def set_obstacle(self, sentence: str) -> None:
        """Why the message cannot be sent as it is, and what to do; empty where nothing is in its way."""
        self._obstacle = sentence
        self._show_notice()
        self._refresh()

    def take(self, data: QMimeData) -> None:
        """Add the pictures that were pasted or dropped."""
        self._add(pictures_in(data))

    @staticmethod
    def takes(data: QMimeData) -> bool:
        return carries_pictures(data)

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
        self.attach_button.setIcon(icon("picture", 20, look.theme.muted))
        self.send_button.setIcon(icon("send", 20, look.theme.on_accent, look.theme.muted))
        self.stop_button.setIcon(icon("stop", 20, look.theme.text, look.theme.muted))
        self.pictures.apply_look(look)
        self.notice.apply_look(look)
        self.draft.fit_height()

    def _is_empty(self) -> bool:
        return self.draft.is_blank() and not self.pictures.squares

    def _can_send(self) -> bool:
        in_the_way = self._busy or self._obstacle or self.pictures.reading
        return self._ready and not in_the_way and not self._is_empty()

    def _on_enter(self) -> None:
        if self._busy and not self._is_empty():
            self._show_hint(self.tr("The reply is still being written; Esc stops it."))
        elif self.pictures.reading:
            self._show_hint(self.tr("The picture is still being read."))
        else:
            self._show_hint()
        self._send()

    def _show_hint(self, hint: str = "") -> None:
        self._hint.setText(hint)
        leaves, comes = (self._context, self._hint) if hint else (self._hint, self._context)
        leaves.hide()
        comes.show()

    def _send(self) -> None:
        if self._can_send():
            text, attachments = self.draft.toPlainText().strip(), self.pictures.attachments
            self.draft.clear()
            self.pictures.clear()
            self._refusals.clear()
            self._show_notice()
            self.sent.emit(text, attachments)

    def _choose(self) -> None:
        choose_pictures(self, lambda paths: self._add([Path(path) for path in paths]))

    def _add(self, sources: list[Source]) -> None:
        self._refusals.clear()
        self._show_notice()
        self.pictures.add(sources)
        self.draft.setFocus()

    def _refuse(self, sentence: str) -> None:
        self._refusals.append(sentence)
        self._show_notice()

    def _show_notice(self) -> None:
        self.notice.show_sentence("\n".join(filter(None, [*self._refusals, self._obstacle])))

    def _on_pictures(self) -> None:
        self.pictures_changed.emit()
        if not self.pictures.reading and self._hint.text() and not self._busy:
            self._show_hint()
        self._refresh()

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
