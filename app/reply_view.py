"""The model's turn: waiting, streaming, and how it ended."""

from __future__ import annotations

import time
from math import ceil

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.call_view import CallView
from app.icons import Picture
from app.look import Look, breakable, label
from app.message_view import MessageView
from app.requests import WayOut
from app.thoughts import Thoughts
from app.throttle import Clock, Throttle
from engine.types import ToolCall

SCREEN_INTERVAL_S = 0.04
QUIET_WAIT_MS = 500


class ReplyView(MessageView):
    """Pieces of text are gathered and shown at most 25 times a second, and not at all while nobody can see them.

    A wait for the first word is spoken of only when it lasts longer than half a second.
    """

    retry = Signal()
    new_chat = Signal()
    open_again = Signal()

    def __init__(self, author: str, look: Look, clock: Clock = time.monotonic) -> None:
        super().__init__("model", author, look)
        self._unshown: list[str] = []
        self._unshown_thoughts: list[str] = []
        self._frame = QTimer(self, singleShot=True)
        self._throttle = Throttle(SCREEN_INTERVAL_S, self._show_text, lambda s: self._frame.start(ceil(s * 1000)))
        self._frame.timeout.connect(self._throttle.fire)

        self.thoughts = Thoughts(look, clock)
        self.thoughts.pane.caret_moved.connect(lambda caret: self.caret_moved.emit(self.thoughts.pane, caret))
        self.calls: list[CallView] = []
        self.activity = Activity()
        self._status = label(level="small", tone="muted")
        self._status.setIndent(1)
        self._status.hide()
        self._wait = QTimer(self, singleShot=True, interval=QUIET_WAIT_MS)
        self._wait.timeout.connect(self.activity.show)
        self._wait.start()
        self._sign: Picture | None = None
        self.error = ""
        self.way_out: QPushButton | None = None
        """What leads on from an error."""
        self._leads: WayOut = "retry"
        self.copy_button.setEnabled(False)
        self.body.hide()
        self.lines.insertWidget(self.lines.indexOf(self.body), self.thoughts)
        self._called = QVBoxLayout()
        self._called.setSpacing(8)
        self.lines.addLayout(self._called)
        for line in (self.activity, self._status):
            self.lines.addWidget(line)

    def apply_look(self, look: Look) -> None:
        super().apply_look(look)
        for part in (self.thoughts, *self.calls):
            part.apply_look(look)
        if self._sign is not None:
            self._sign.set_color(look.theme.bad)

    @property
    def stops(self) -> tuple[QWidget, ...]:
        return self.thoughts.header, self.thoughts.pane, *super().stops

    @property
    def status(self) -> str:
        """The line below the reply, empty while it is made."""
        return self._status.text()

    def set_activity(self, what: str, done: int, total: int) -> None:
        """Say what the model does before it speaks. Shown only where that takes long."""
        self.activity.set(what, done, total)

    def think(self, text: str) -> None:
        """A piece of the model's reasoning."""
        another = not self.thoughts.lasting and (self.thoughts.text or self._unshown_thoughts)
        self.thoughts.begin()
        self._unshown_thoughts.append(f"\n\n{text}" if another else text)
        self._throttle()

    def stream(self, text: str) -> None:
        self.thoughts.end()
        self._unshown.append(text)
        self._throttle()

    def add_call(self, call: ToolCall) -> None:
        """The model asks for a tool."""
        self.show_pending()
        self._hide_activity()
        self.thoughts.end()
        if not self.calls:
            self._called.setContentsMargins(0, 4, 0, 4)
        view = CallView(call, self._look)
        view.body.caret_moved.connect(lambda caret: self.caret_moved.emit(view.body, caret))
        self._called.addWidget(view)
        QWidget.setTabOrder(self.calls[-1].body if self.calls else self.body, view.body)
        self.calls.append(view)

    def show_pending(self) -> None:
        """Show what came while the view could not be seen."""
        if self._unshown or self._unshown_thoughts:
            self._show_text(even_if_hidden=True)

    def finish(self, status: str, details: str = "") -> None:
        self._settle()
        self._status.setText(status)
        self._status.setToolTip(details)
        self._status.show()

    def fail(self, sentence: str, way_out: WayOut) -> None:
        self._settle()
        self.error = sentence
        self.lines.addSpacing(4)
        self.lines.addWidget(self._make_notice(sentence))
        self._lead(way_out)

    def model_opened(self) -> None:
        """The model has been opened again, so that what failed can be asked once more."""
        if self._leads == "open again":
            self._lead("retry")

    def give_up(self) -> None:
        """Take away what leads on from an error: the conversation has gone on without it."""
        if self.way_out is not None:
            self.way_out.hide()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_pending()

    def _settle(self) -> None:
        self._throttle.drop()
        self._frame.stop()
        self.show_pending()
        self._hide_activity()
        self.thoughts.end()

    def _show_text(self, even_if_hidden: bool = False) -> None:
        seen = self.isVisible() and not self.window().isMinimized()
        if not (seen or even_if_hidden):
            return
        self._hide_activity()
        if self._unshown_thoughts:
            self.thoughts.add("".join(self._unshown_thoughts))
            self._unshown_thoughts.clear()
        if self._unshown:
            self.body.show()
            self.copy_button.setEnabled(True)
            self.append_text("".join(self._unshown))
            self._unshown.clear()

    def _hide_activity(self) -> None:
        self._wait.stop()
        self.activity.hide()

    def _lead(self, way_out: WayOut) -> None:
        assert self.way_out is not None
        self._leads = way_out
        self.way_out.setText(
            {
                "retry": self.tr("Try again"),
                "new chat": self.tr("New chat"),
                "open again": self.tr("Open the model again"),
            }[way_out]
        )

    def _follow_way_out(self) -> None:
        {"retry": self.retry, "new chat": self.new_chat, "open again": self.open_again}[self._leads].emit()

    def _make_notice(self, sentence: str) -> QWidget:
        notice = QFrame()
        notice.setObjectName("notice")
        self._sign = Picture("warning", 20, self._look.theme.bad)
        self._sign.setAccessibleName(self.tr("Error"))
        text = label(breakable(sentence), wrap=True)
        text.setAccessibleName(sentence)
        self.way_out = QPushButton()
        self.way_out.clicked.connect(self._follow_way_out)
        row = QHBoxLayout(notice)
        row.setContentsMargins(12, 12, 12, 12)
        row.setSpacing(12)
        row.addWidget(self._sign)
        row.addWidget(text, 1)
        row.addWidget(self.way_out)
        return notice


class Activity(QWidget):
    """A line of small text over a thin bar."""

    def __init__(self) -> None:
        super().__init__()
        self._what = label(self.tr("Getting ready…"), level="small", tone="muted")
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setMaximumWidth(240)
        self._bar.setAccessibleName(self.tr("Progress of reading the conversation"))
        self._bar.hide()
        lines = QVBoxLayout(self)
        lines.setContentsMargins(0, 0, 0, 4)
        lines.setSpacing(8)
        lines.addWidget(self._what)
        lines.addWidget(self._bar)
        self.hide()

    @property
    def text(self) -> str:
        return self._what.text()

    def set(self, what: str, done: int, total: int) -> None:
        self._what.setText(what)
        self._bar.setVisible(total > 0)
        self._bar.setRange(0, max(total, 1))
        self._bar.setValue(done)
