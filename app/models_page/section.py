"""One part of the page: a list with what belongs above it, and a word where it is empty."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from app.look import Look, label
from app.models_page.row_list import RowList
from app.models_page.rows import Rows
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.models_page.trouble import Trouble


class Section(QWidget):
    """`current` tells of a row that is walked onto, `opened` of one that is clicked or entered, each by its key."""

    current = Signal(str)
    opened = Signal(str)

    def __init__(self, services: Services, tasks: Tasks, look: Look, name: str) -> None:
        super().__init__()
        self.services, self.tasks = services, tasks
        self.rows = Rows(self)
        self.list = RowList(self.rows, look, name)
        self.list.current.connect(self.current)
        self.list.opened.connect(self.opened)
        self.trouble = Trouble(services, tasks, look)
        self.trouble.again.connect(self.renew)
        self.waiting = QProgressBar()
        self.waiting.setRange(0, 0)
        self.waiting.setTextVisible(False)
        self.waiting.hide()
        self.empty = label(tone="muted", wrap=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.empty.setContentsMargins(24, 48, 24, 0)
        self.empty.hide()
        self.above = QVBoxLayout()
        self.above.setContentsMargins(16, 16, 16, 0)
        self.above.setSpacing(8)
        for part in (self.waiting, self.trouble):
            self.above.addWidget(part)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(self.above)
        column.addWidget(self.empty)
        column.addWidget(self.list, 1)
        self.below = QVBoxLayout()
        column.addStretch(0)
        column.addLayout(self.below)

    def renew(self) -> None:
        """Have what is shown be what there is. Called whenever the section comes to the front."""

    def take_focus(self) -> None:
        """Where the keyboard is when the section comes to the front."""
        self.list.setFocus()

    def apply_look(self, look: Look) -> None:
        self.list.apply_look(look)
        self.trouble.apply_look(look)

    def show_empty(self, text: str, *, away: bool = False) -> None:
        """A sentence in place of the list; "" for the list. `away`: for neither of them."""
        self.empty.setText(text)
        self.empty.setVisible(bool(text) and not away)
        self.list.setVisible(not text and not away)
