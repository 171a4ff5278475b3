"""The details at the right: what is common to those of a repository, of a model that is here, and of a download."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.look import breakable, label
from app.models_page.action_bar import ActionBar

WIDEST = 928
"""Pixels, beyond which a line is no longer read with ease."""


class Pane(QWidget):
    """A title, where it is from, a line of facts and a paragraph; then `body`, and at the foot what can be done."""

    def __init__(self) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.title = label(level="display", wrap=True)
        self.origin = label(level="small", tone="muted", wrap=True)
        self.facts = label(level="small", tone="muted", wrap=True)
        self.paragraph = label(wrap=True)
        for line in (self.title, self.origin):
            line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.actions = ActionBar()
        inner = QWidget()
        head = QVBoxLayout()
        head.setContentsMargins(24, 24, 24, 0)
        head.setSpacing(4)
        for line in (self.title, self.origin):
            head.addWidget(line)
        head.addSpacing(8)
        for line in (self.paragraph, self.facts):
            head.addWidget(line)
        self.body = QVBoxLayout()
        self.body.setContentsMargins(24, 16, 24, 0)
        self.body.setSpacing(12)
        inside = QVBoxLayout(inner)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(0)
        inside.addLayout(head)
        inside.addLayout(self.body, 1)
        inner.setMaximumWidth(WIDEST)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._scrolling(inner), 1)
        column.addWidget(self.actions)

    @staticmethod
    def _scrolling(inner: QWidget) -> QScrollArea:
        """Where the window is low, all but the foot moves."""
        area = QScrollArea()
        area.setObjectName("pane")
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidgetResizable(True)
        area.setWidget(inner)
        return area

    def take_focus(self) -> None:
        """Where the keyboard is when the details come to the front."""
        self.actions.main.setFocus()

    def show_head(self, title: str, origin: str, facts: tuple[str, ...], paragraph: str = "") -> None:
        """What is empty takes no room."""
        told = " · ".join(fact for fact in facts if fact)
        for line, text in (
            (self.title, title),
            (self.origin, origin),
            (self.facts, told),
            (self.paragraph, paragraph),
        ):
            line.setText(breakable(text))
            line.setVisible(bool(text))
