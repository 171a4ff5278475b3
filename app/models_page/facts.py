"""Facts about a model, one below the other: what it is on the left, the value on the right."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.look import breakable, label

NAMES = 112
"""Pixels of the left column."""


class Facts(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[QLabel, QLabel]] = []
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(8)
        self._grid.setColumnMinimumWidth(0, NAMES)
        self._grid.setColumnStretch(1, 1)

    def show_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Without those whose value is empty."""
        told = [(name, value) for name, value in facts if value]
        while len(self._lines) < len(told):
            name, value = label(level="small", tone="muted"), label(level="small", wrap=True)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            self._grid.addWidget(name, len(self._lines), 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(value, len(self._lines), 1)
            self._lines.append((name, value))
        for number, line in enumerate(self._lines):
            for part, text in zip(line, told[number] if number < len(told) else ("", ""), strict=True):
                part.setText(breakable(text))
                part.setVisible(number < len(told))
