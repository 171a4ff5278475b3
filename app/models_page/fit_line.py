"""How a model would run, in a line: the sign and the words."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.look import Look, label
from app.models_page.fit_mark import FitMark
from app.models_page.fitness import Fitness, explained, words
from app.translated import translated


class FitLine(QWidget):
    """Hidden while nothing is known."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._mark = FitMark(look.theme)
        self.words = label(wrap=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self._mark)
        row.addWidget(self.words, 1)
        self.hide()

    def show_fitness(self, fitness: Fitness | None) -> None:
        self.setVisible(fitness is not None)
        if fitness is not None:
            told = words(fitness, translated)
            self._mark.set_fitness(fitness)
            self.words.setText(told[:1].upper() + told[1:])
            self.setToolTip(explained(fitness, translated))

    def apply_look(self, look: Look) -> None:
        self._mark.set_theme(look.theme)
