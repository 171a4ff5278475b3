"""The foot of the details: what is chosen, how far it is, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout

from app.elided_label import ElidedLabel
from app.look import breakable, label, set_property

JOINED = "\u2060"
"""Where no line may end: within "tokens/s"."""
SIDE = 24
LEAST = 150
"""Pixels that the words have beside the buttons, or else stand above them."""


@dataclass(frozen=True)
class Deed:
    """A button. Without `do` it only says how things are."""

    text: str
    do: Callable[[], None] | None = None


@dataclass(frozen=True)
class Question:
    """What is asked before something that cannot be undone."""

    text: str
    yes: str
    no: str
    do: Callable[[], None]


class ActionBar(QFrame):
    """One button that leads on, at most two quiet ones beside it, and above them a line of progress and a sentence.

    Only the name of what is chosen is ever cut short: of a question and of figures every word counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("actions")
        self._question: Question | None = None
        self._told = ""
        self._shown: tuple[str, str, Deed | None, Sequence[Deed], float | None, str, str] | None = None
        self._chosen = ElidedLabel()
        self._chosen.setProperty("level", "author")
        self._asked = label(level="author", wrap=True)
        self._figures = label(level="small", tone="muted", wrap=True)
        self.sentence = label(level="small", wrap=True)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setAccessibleName(self.tr("Progress"))
        self.quiet = (QPushButton(), QPushButton())
        self.main = QPushButton()
        self.main.setProperty("primary", True)
        self._deeds: dict[QPushButton, Callable[[], None]] = {}
        for button in (*self.quiet, self.main):
            button.clicked.connect(lambda _=False, button=button: self._deeds[button]())

        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self._chosen)
        words.addWidget(self._asked)
        words.addWidget(self._figures)
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(8)
        self._buttons.addStretch(1)
        for button in (*self.quiet, self.main):
            self._buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._row.setSpacing(8)
        self._row.addLayout(words, 1)
        self._row.addLayout(self._buttons)
        column = QVBoxLayout(self)
        column.setContentsMargins(SIDE, 12, SIDE, 12)
        column.setSpacing(8)
        column.addWidget(self.sentence)
        column.addWidget(self.progress)
        column.addLayout(self._row)
        self._show("", "", None, (), None, "", "")

    @property
    def told(self) -> str:
        """The line below the name."""
        return self._told

    @property
    def asked(self) -> str:
        """The question that is open; "" for none."""
        return self._question.text if self._question is not None else ""

    def show_deeds(
        self,
        chosen: str,
        figures: str,
        main: Deed | None,
        quiet: Sequence[Deed] = (),
        *,
        progress: float | None = None,
        sentence: str = "",
        tone: str = "muted",
    ) -> None:
        """What stands there, unless a question does: it stays until it is answered."""
        self._shown = (chosen, figures, main, quiet, progress, sentence, tone)
        if self._question is None:
            self._show(*self._shown)

    def ask(self, question: Question) -> None:
        """Ask in place of the buttons; the focus lies on the answer that changes nothing."""
        self._question = question
        self._show("", "", Deed(question.no, self.answer), (Deed(question.yes, self._do),), None, "", "")
        self.main.setFocus()

    def answer(self) -> None:
        """Have nothing come of the question."""
        self._question = None
        if self._shown is not None:
            self._show(*self._shown)

    def _do(self) -> None:
        question = self._question
        self.answer()
        if question is not None:
            question.do()

    def _show(
        self,
        chosen: str,
        figures: str,
        main: Deed | None,
        quiet: Sequence[Deed],
        progress: float | None,
        sentence: str,
        tone: str,
    ) -> None:
        self._asked.setText(breakable(self.asked))
        self._asked.setVisible(bool(self.asked))
        self._chosen.setText(chosen)
        self._chosen.setVisible(not self.asked)
        self._told = figures
        self._figures.setText(figures.replace("/", f"/{JOINED}"))
        self._figures.setVisible(bool(figures))
        self.sentence.setText(breakable(sentence))
        self.sentence.setVisible(bool(sentence))
        set_property(self.sentence, "tone", tone)
        self.progress.setVisible(progress is not None)
        self.progress.setValue(round(1000 * (progress or 0.0)))
        for number, button in enumerate((self.main, *self.quiet)):
            deed = main if number == 0 else (quiet[number - 1] if number <= len(quiet) else None)
            self._set(button, deed)
        self._arrange()
        self.layout().activate()  # at once: a button that was hidden has the width of no text yet

    def _arrange(self) -> None:
        """The words stand above the buttons where there is too little room beside them."""
        beside = self.width() - 2 * SIDE - self._buttons.sizeHint().width() - self._row.spacing()
        told = any(text.text() for text in (self._chosen, self._asked, self._figures))
        below = told and beside < LEAST
        way = QBoxLayout.Direction.TopToBottom if below else QBoxLayout.Direction.LeftToRight
        if way != self._row.direction():
            self._row.setDirection(way)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _set(self, button: QPushButton, deed: Deed | None) -> None:
        do = deed.do if deed is not None else None
        if button.hasFocus() and do is None:
            self.parentWidget().setFocus()
        button.setVisible(deed is not None)
        button.setText(deed.text if deed is not None else "")
        button.setEnabled(do is not None)
        self._deeds[button] = do or (lambda: None)
