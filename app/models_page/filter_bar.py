"""The filters of a search, each a small button: two that are on or off, two that open a menu."""

from __future__ import annotations

from typing import get_args

from PySide6.QtCore import Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from app.flow import Flow
from app.look import set_property
from app.models_page.filters import Filter, Licence, Size


class FilterBar(QWidget):
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.fits = self._toggle(self.tr("Fits memory"), self.tr("Only what this computer can hold in memory"))
        self.sees = self._toggle(self.tr("Sees pictures"), self.tr("Only what can be shown pictures"))
        sizes = (self.tr("Any size"), self.tr("Up to 4B"), self.tr("4B to 15B"), self.tr("Over 15B"))
        self.size = MenuChip(self.tr("Size"), sizes)
        licences = (self.tr("Any licence"), self.tr("Free for any use"), self.tr("With conditions"))
        self.licence = MenuChip(self.tr("Licence"), licences)
        self.size.setToolTip(self.tr("How many weights it has, in billions (B)"))
        for chip in (self.size, self.licence):
            chip.chosen.connect(self.changed)
        row = Flow(self, 8)
        for part in (self.fits, self.sees, self.size, self.licence):
            row.addWidget(part)

    def filter(self, room: int) -> Filter:
        return Filter(
            fits=self.fits.isChecked(),
            sees=self.sees.isChecked(),
            size=get_args(Size)[self.size.number],
            licence=get_args(Licence)[self.licence.number],
            room=room,
        )

    def _toggle(self, text: str, tip: str) -> QPushButton:
        button = QPushButton(text)
        button.setProperty("chip", True)
        button.setCheckable(True)
        button.setToolTip(tip)
        button.toggled.connect(lambda _: self.changed.emit())
        return button


class MenuChip(QPushButton):
    """One of several, of which the first is no filter at all."""

    chosen = Signal()

    def __init__(self, name: str, texts: tuple[str, ...]) -> None:
        super().__init__()
        self.number = 0
        self._name = name
        self._texts = texts
        self.setProperty("chip", True)
        menu = QMenu(self)
        group = QActionGroup(self)
        self.choices = [menu.addAction(text) for text in texts]
        for number, action in enumerate(self.choices):
            action.setCheckable(True)
            group.addAction(action)
            action.triggered.connect(lambda _=False, number=number: self._choose(number))
        self.setMenu(menu)
        self._show()

    def show_number(self, number: int) -> None:
        """As if it had been chosen, without telling so."""
        self.number = number
        self._show()

    def _choose(self, number: int) -> None:
        self.show_number(number)
        self.chosen.emit()

    def _show(self) -> None:
        self.choices[self.number].setChecked(True)
        self.setText(f"{self._texts[self.number]} ▾")
        self.setAccessibleName(f"{self._name}: {self._texts[self.number]}")
        set_property(self, "filled", self.number > 0)
