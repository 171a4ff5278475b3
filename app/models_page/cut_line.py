"""A move that was cut off, offered to be gone on with: a line below the header of the page."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton

from app.look import Look
from app.models_page.mover import Mover
from app.models_page.shelf import Shelf
from app.models_page.standing import Cut, shortened
from app.notice_line import NoticeLine


class CutLine(QFrame):
    """Hidden while there is none."""

    went_on = Signal()

    def __init__(self, shelf: Shelf, mover: Mover, look: Look) -> None:
        super().__init__()
        self.setObjectName("importing")
        self._shelf, self._mover = shelf, mover
        self.notice = NoticeLine(look)
        self.leave_button = QPushButton(self.tr("Leave it"))
        self.leave_button.clicked.connect(lambda: mover.forget(shelf.refresh))
        self.on_button = QPushButton(self.tr("Go on"))
        self.on_button.setProperty("primary", True)
        self.on_button.clicked.connect(self._go_on)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 8, 24, 8)
        row.setSpacing(8)
        row.addWidget(self.notice, 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.leave_button)
        row.addWidget(self.on_button)
        shelf.changed.connect(self._renew)
        mover.changed.connect(self._renew)
        self._renew()

    def apply_look(self, look: Look) -> None:
        self.notice.apply_look(look)

    @property
    def _cut(self) -> Cut | None:
        standing = self._shelf.standing
        return standing.cut if standing is not None and not self._mover.moving else None

    def _renew(self) -> None:
        cut = self._cut
        self.setVisible(cut is not None)
        if cut is None:
            return
        if cut.copied:
            sentence = self.tr("The models have moved, but the copies in {place} were not all deleted.")
            self.notice.show_sentence(sentence.format(place=shortened(cut.source)))
        else:
            sentence = self.tr("The move of the models to {place} was cut off. They are where they were.")
            self.notice.show_sentence(sentence.format(place=shortened(cut.target)))

    def _go_on(self) -> None:
        if (cut := self._cut) is not None:
            self._mover.go_on(cut)
            self.went_on.emit()
