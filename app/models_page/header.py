"""The head of the page: the way back, and the sections. Where there is little room, they stand in two rows."""

from __future__ import annotations

from typing import Literal, get_args

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QSizePolicy, QToolButton, QWidget

from app.flow import Flow
from app.icons import icon
from app.look import Look, label

Part = Literal["recommended", "library", "downloads", "search", "computer"]
HIGH = 56


class Header(QFrame):
    back = Signal()
    chosen = Signal(str)
    """A Part."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("modelsHeader")
        self.setMinimumHeight(HIGH)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.back_button = QToolButton()
        self.back_button.setIconSize(QSize(20, 20))
        self.back_button.setToolTip(self.tr("Back (Esc)"))
        self.back_button.setAccessibleName(self.tr("Back"))
        self.back_button.clicked.connect(self.back)
        self.title = label(self.tr("Models"), level="title")
        self.tabs: dict[Part, QPushButton] = {}
        self._group = QButtonGroup(self)
        texts = (
            self.tr("Recommended"),
            self.tr("Library"),
            self.tr("Downloads"),
            self.tr("Search"),
            self.tr("This computer"),
        )
        tabs = QWidget()
        flow = Flow(tabs, spacing=4)
        for part, text in zip(get_args(Part), texts, strict=True):
            tab = QPushButton(text)
            tab.setProperty("tab", True)
            tab.setCheckable(True)
            tab.clicked.connect(lambda _=False, part=part: self.chosen.emit(part))
            self._group.addButton(tab)
            self.tabs[part] = tab
            flow.addWidget(tab)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 16, 8)
        row.setSpacing(4)
        row.addWidget(self.back_button)
        row.addSpacing(4)
        row.addWidget(self.title)
        row.addSpacing(20)
        row.addWidget(tabs, 1, Qt.AlignmentFlag.AlignVCenter)

    def show_running(self, running: int) -> None:
        """How many downloads there are."""
        text = self.tr("Downloads")
        self.tabs["downloads"].setText(f"{text} · {running}" if running else text)

    def apply_look(self, look: Look) -> None:
        self.back_button.setIcon(icon("back", 20, look.theme.text))
