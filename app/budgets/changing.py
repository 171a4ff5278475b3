"""The sliders for the model that is loaded, with what makes them count."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.budgets.panel import BudgetPanel, Open
from app.look import Look, label
from app.models_page.tasks import Tasks
from engine.types import Budgets


class Changing(QWidget):
    """`applied` has the budgets to load it with; `left` says that all stays as it is."""

    applied = Signal(object)
    left = Signal()

    def __init__(self, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self._before: Budgets | None = None
        self.panel = BudgetPanel(tasks, look)
        self.note = label(
            self.tr("Apply opens the model again. The conversation stays."), level="small", tone="muted", wrap=True
        )
        self.cancel_button = QPushButton(self.tr("Cancel"))
        self.apply_button = QPushButton(self.tr("Apply"))
        self.apply_button.setProperty("primary", True)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.note, 1)
        buttons.addWidget(self.cancel_button)
        buttons.addWidget(self.apply_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addWidget(self.panel)
        column.addLayout(buttons)
        self.cancel_button.clicked.connect(self.left)
        self.apply_button.clicked.connect(lambda: self.applied.emit(self.panel.budgets))
        self.panel.changed.connect(self._renew)
        self.panel.answered.connect(self._renew)

    def open(self, opened: Open) -> None:
        """Show the model as it is loaded: what `opened` tells is what it was loaded with."""
        self._before = None
        self.panel.open(opened)
        self._renew()

    def apply_look(self, look: Look) -> None:
        self.panel.apply_look(look)

    def _renew(self) -> None:
        if self._before is None and self.panel.settled:
            self._before = self.panel.budgets
            if self.cancel_button.hasFocus():  # the sliders could not have it until now
                self.panel.memory.slider.setFocus()
        self.apply_button.setEnabled(self.panel.runs and self.panel.budgets != self._before)
