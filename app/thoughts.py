"""A model's reasoning: one quiet line that says how long it took, and unfolds into what was thought."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QToolButton, QVBoxLayout, QWidget

from app.icons import icon
from app.look import Look
from app.text_pane import TextPane
from app.throttle import Clock

SHOWN_AT_ONCE = 8000
"""Characters that are laid out before the window gets to do something else."""


class Thoughts(QWidget):
    """Nothing of the text is laid out until somebody wants to read it."""

    unfolding = Signal()
    """The reader is about to see more."""

    def __init__(self, look: Look, clock: Clock) -> None:
        super().__init__()
        self._look = look
        self._clock = clock
        self._text = ""
        self._shown = 0
        self._began: float | None = None
        self._seconds = 0.0

        self.header = QToolButton()
        self.header.setObjectName("thoughtsHeader")
        self.header.setCheckable(True)
        self.header.setIconSize(QSize(14, 14))
        self.header.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.header.toggled.connect(self._unfold)
        self.pane = TextPane(look)
        self.pane.setAccessibleName(self.tr("What the model thought"))
        self._aside = QFrame()
        self._aside.setObjectName("aside")
        self._aside.hide()
        inside = QVBoxLayout(self._aside)
        inside.setContentsMargins(12, 0, 0, 0)
        inside.addWidget(self.pane)
        lines = QVBoxLayout(self)
        lines.setContentsMargins(0, 0, 0, 8)
        lines.setSpacing(8)
        lines.addWidget(self.header, 0, Qt.AlignmentFlag.AlignLeft)
        lines.addWidget(self._aside)
        self._rest = QTimer(self, singleShot=True, interval=0)
        self._rest.timeout.connect(self._show_more)
        self._name()
        self.hide()

    @property
    def text(self) -> str:
        return self._text

    @property
    def lasting(self) -> bool:
        return self._began is not None

    def begin(self) -> None:
        """The model thinks, from now until `end`. It may do so more than once in a reply."""
        if self._began is None:
            self._began = self._clock()
            self._name()

    def add(self, text: str) -> None:
        """Show more of the reasoning."""
        self._text += text
        self.show()
        if self.header.isChecked():
            self._show_more()

    def end(self) -> None:
        """The thought is over, for now at least."""
        if self._began is not None:
            self._seconds += self._clock() - self._began
            self._began = None
            self._name()

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.pane.apply_look(look)
        self._name()

    def _unfold(self, unfolded: bool) -> None:
        if unfolded:
            self.unfolding.emit()
            self._show_more()
        elif self.pane.hasFocus():
            self.header.setFocus()
        self._aside.setVisible(unfolded)
        self._name()

    def _show_more(self) -> None:
        if self.header.isChecked() and self._shown < len(self._text):
            start, self._shown = self._shown, self._shown + SHOWN_AT_ONCE
            self.pane.append_text(self._text[start : self._shown])
            self._shown = min(self._shown, len(self._text))
            if self._shown < len(self._text):
                self._rest.start()

    def _name(self) -> None:
        self.header.setText(self.tr("Thinking…") if self.lasting else self._duration())
        unfolded = self.header.isChecked()
        self.header.setIcon(icon("fold" if unfolded else "unfold", 14, self._look.theme.muted))
        self.header.setToolTip(self.tr("Hide the reasoning") if unfolded else self.tr("Show the reasoning"))

    def _duration(self) -> str:
        seconds = round(self._seconds)
        if seconds < 1:
            return self.tr("Thought for a moment")
        if seconds < 60:
            return self.tr("Thought for {s} s").format(s=seconds)
        return self.tr("Thought for {min} min {s} s").format(min=seconds // 60, s=seconds % 60)
