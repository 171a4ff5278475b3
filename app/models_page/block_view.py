"""One part of the machine: its name at the left, or above where there is little room, and what is known of it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QVBoxLayout

from app.look import Look, breakable, label
from app.models_page.machine_words import Block
from app.notice_line import NoticeLine

NAMES = 168
"""Pixels of the left column."""
STACKED = 560
"""Pixels below which there is none."""


class BlockView(QFrame):
    def __init__(self, block: Block, look: Look) -> None:
        super().__init__()
        self.setObjectName("block")
        self.block = block
        self._part = label(block.part, level="small", tone="muted")
        column = QVBoxLayout()
        column.setSpacing(4)
        for number, text in enumerate((block.title, *block.lines)):
            if text:
                line = label(breakable(text), level="" if number == 0 else "small", wrap=True)
                line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
                column.addWidget(line)
        self._notices = [NoticeLine(look) for _ in block.warnings]
        for notice, sentence in zip(self._notices, block.warnings, strict=True):
            notice.show_sentence(sentence)
            column.addWidget(notice)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.setContentsMargins(0, 12, 0, 12)
        self._row.setSpacing(4)
        self._row.addWidget(self._part, 0, Qt.AlignmentFlag.AlignTop)
        self._row.addLayout(column, 1)

    def apply_look(self, look: Look) -> None:
        for notice in self._notices:
            notice.apply_look(look)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        stacked = self.width() < STACKED
        way = QBoxLayout.Direction.TopToBottom if stacked else QBoxLayout.Direction.LeftToRight
        self._part.setMinimumWidth(0 if stacked else NAMES)
        self._part.setVisible(bool(self.block.part) or not stacked)
        if self._row.direction() != way:
            self._row.setDirection(way)
