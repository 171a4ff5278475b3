"""The pane that shows a conversation: a column of turns, following the newest only while the reader is at the end."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QToolButton, QVBoxLayout, QWidget

from app.attachment import Attachment
from app.icons import icon
from app.look import Look, centred
from app.message_view import MessageView
from app.reply_view import ReplyView
from app.stylesheet import COLUMN

LAID_OUT_MS = 50
"""After so long what has unfolded has its place."""


class Conversation(QScrollArea):
    """Any scroll upwards lets go of the newest text, and a button appears that leads back to it."""

    retry = Signal()
    new_chat = Signal()
    open_again = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._following = True
        self._views: list[MessageView] = []
        self.setObjectName("conversation")
        self.setAccessibleName(self.tr("Conversation"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Always there, though unseen while idle: the column stays in line with the composer below it.
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)

        self._page = page = QWidget()
        page.setObjectName("page")
        column = QWidget()
        self._turns = QVBoxLayout(column)
        self._turns.setContentsMargins(16, 24, 4, 24)
        self._turns.setSpacing(16)
        self._turns.addStretch(1)
        page.setLayout(centred(column, COLUMN))
        self.setWidget(page)

        self.newest_button = QToolButton(self.viewport())
        self.newest_button.setProperty("outlined", True)
        self.newest_button.setIconSize(QSize(20, 20))
        self.newest_button.setToolTip(self.tr("Jump to the newest text"))
        self.newest_button.setAccessibleName(self.newest_button.toolTip())
        self.newest_button.clicked.connect(self.follow)
        self.newest_button.hide()
        self.apply_look(look)

        bar = self.verticalScrollBar()
        self._unfolded = QTimer(self, singleShot=True, interval=LAID_OUT_MS)
        self._unfolded.timeout.connect(lambda: self._on_scroll(bar.value()))
        bar.setSingleStep(24)
        bar.rangeChanged.connect(self._on_range)
        bar.valueChanged.connect(self._on_scroll)

    @property
    def reply(self) -> ReplyView | None:
        """The newest reply."""
        last = self._views[-1] if self._views else None
        return last if isinstance(last, ReplyView) else None

    @property
    def following(self) -> bool:
        return self._following

    def add_exchange(self, prompt: str, author: str, pictures: Sequence[Attachment] = ()) -> ReplyView:
        """Show what was asked, and an empty reply that is to come."""
        if self.reply is not None:
            self.reply.give_up()
        asked = MessageView("user", self.tr("You"), self._look)
        asked.set_text(prompt)
        if pictures:
            asked.set_pictures(pictures)
        reply = ReplyView(author, self._look)
        reply.retry.connect(self.retry)
        reply.new_chat.connect(self.new_chat)
        reply.open_again.connect(self.open_again)
        reply.thoughts.unfolding.connect(self._let_go)
        for view in (asked, reply):
            view.caret_moved.connect(self._keep_in_view)
            self._views.append(view)
            self._turns.insertWidget(self._turns.count() - 1, view)
        self._order_focus()
        self.follow()
        return reply

    def _order_focus(self) -> None:
        """Tab goes through the newest turns as they are read."""
        before: QWidget = self._views[-3].copy_button if len(self._views) > 2 else self
        for view in self._views[-2:]:
            for after in view.stops:
                QWidget.setTabOrder(before, after)
                before = after

    def remove_exchange(self) -> None:
        """Take the newest exchange away."""
        for view in self._views[-2:]:
            self._turns.removeWidget(view)
            view.hide()
            view.deleteLater()
        del self._views[-2:]

    def clear(self) -> None:
        while self._views:
            self.remove_exchange()
        self.follow()

    def show_pending(self) -> None:
        """Show what came while the window was minimised."""
        if self.reply is not None:
            self.reply.show_pending()

    def model_opened(self) -> None:
        """A reply that failed for want of its model can be asked for again."""
        if self.reply is not None:
            self.reply.model_opened()

    def follow(self) -> None:
        """Go to the newest text, and stay with it."""
        self._following = True
        self.newest_button.hide()
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.newest_button.setIcon(icon("newest", 20, look.theme.text))
        for view in self._views:
            view.apply_look(look)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        button = self.newest_button
        button.adjustSize()
        room = self.viewport().size()
        button.move((room.width() - button.width()) // 2, room.height() - button.height() - 12)

    def _on_range(self, _low: int, high: int) -> None:
        if self._following:
            self.verticalScrollBar().setValue(high)
        else:
            self._on_scroll(self.verticalScrollBar().value())

    def _let_go(self) -> None:
        """What unfolds is read from its beginning."""
        self._following = False
        self._unfolded.start()

    def _on_scroll(self, value: int) -> None:
        self._following = value >= self.verticalScrollBar().maximum()
        self.newest_button.setVisible(not self._following)

    def _keep_in_view(self, body: QWidget, caret: QRect) -> None:
        at = body.mapTo(self._page, QPoint(caret.left(), caret.center().y()))
        self.ensureVisible(at.x(), at.y(), 0, caret.height())
