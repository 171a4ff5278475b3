"""Where the models are kept, quietly, below the list of them; while they move, how far that is."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout

from app.elided_label import ElidedLabel
from app.look import label
from app.models_page.figures import size
from app.models_page.mover import Mover
from app.models_page.shelf import Shelf
from app.models_page.standing import shortened

HIGH = 66
"""Pixels, as the foot of the details beside it."""


class FolderLine(QFrame):
    asked = Signal()
    """The person wants to see to it."""

    def __init__(self, shelf: Shelf, mover: Mover) -> None:
        super().__init__()
        self.setObjectName("actions")
        self.setMinimumHeight(HIGH)
        self._shelf, self._mover = shelf, mover
        self.told = label(level="small", tone="muted")
        self.path = ElidedLabel(Qt.TextElideMode.ElideMiddle)
        self.path.setProperty("level", "small")
        self.button = QPushButton()
        self.button.clicked.connect(self.asked)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self.told)
        words.addWidget(self.path)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 12, 16, 12)
        row.setSpacing(12)
        row.addLayout(words, 1)
        row.addWidget(self.button)
        shelf.changed.connect(self._renew)
        mover.changed.connect(self._renew)
        self._renew()

    def _renew(self) -> None:
        standing, target = self._shelf.standing, self._mover.target
        self.setVisible(standing is not None and (standing.state != "missing" or target is not None))
        if standing is None:
            return
        self.button.setText(self.tr("Move…"))
        self.button.setAccessibleName(self.tr("Move the models to another folder…"))
        told = self.tr("Models are kept in")
        if standing.free is not None:
            told = self.tr("Models are kept here · {size} free").format(size=size(standing.free))
        if target is not None:
            percent = 100 * self._mover.done // max(self._mover.total, 1)
            told = self.tr("Moving the models · {n} %").format(n=percent)
            self.button.setText(self.tr("Show"))
            self.button.setAccessibleName(self.tr("Show how the models move"))
        path = target or standing.root
        self.told.setText(told)
        self.path.setText(shortened(path))
        self.path.setToolTip(str(path))
