"""The quantisations of a repository as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, Qt

from app.models_page.acts import RUNNING, Choice
from app.models_page.figures import size
from app.models_page.fitness import explained, words
from app.models_page.rows import Index
from app.translated import translated

CHOICE = Qt.ItemDataRole.UserRole + 1
NAME, SIZE, FIT = range(3)


class OfferTable(QAbstractTableModel):
    """One row for each offer: what it is called and whether it is here, its size, and how it would run."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._choices: list[Choice] = []

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(self._choices)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own default)
        return 0 if parent.isValid() else len(self._choices)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else 3

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignVCenter | (
                Qt.AlignmentFlag.AlignRight if section == SIZE else Qt.AlignmentFlag.AlignLeft
            )
        if role == Qt.ItemDataRole.ToolTipRole and section == NAME:
            return self.tr("How the weights are packed: more bits are finer, and larger")
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        return (self.tr("Quantisation"), self.tr("Size"), self.tr("On this computer"))[section]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._choices):
            return None
        choice, column = self._choices[index.row()], index.column()
        if role == CHOICE:
            return choice
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignVCenter | (
                Qt.AlignmentFlag.AlignRight if column == SIZE else Qt.AlignmentFlag.AlignLeft
            )
        if role == Qt.ItemDataRole.ToolTipRole:
            return explained(choice.fitness, translated) if column == FIT else self._files(choice)
        if role == Qt.ItemDataRole.AccessibleTextRole and column == NAME:
            return ", ".join(part for part in (choice.offer.name, self.state(choice)) if part)
        if role == Qt.ItemDataRole.AccessibleDescriptionRole and column == NAME:  # where the others are not shown
            return f"{size(choice.offer.nbytes)}, {self._fit(choice)}"
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return None
        return (choice.offer.name, size(choice.offer.nbytes), self._fit(choice))[column]

    def state(self, choice: Choice) -> str:
        """What stands after the name."""
        if choice.kept is not None:
            return self.tr("loaded") if choice.loaded else self.tr("in your library")
        item = choice.item
        if item is not None and item.state in (*RUNNING, "paused"):
            percent = f"{100 * item.done // max(item.nbytes, 1)} %"
            return self.tr("paused at {percent}").format(percent=percent) if item.state == "paused" else percent
        return self.tr("recommended") if choice.recommended else ""

    def set_choices(self, choices: Sequence[Choice]) -> None:
        self.beginResetModel()
        self._choices = list(choices)
        self.endResetModel()

    def change(self, changed: Callable[[Choice], Choice]) -> None:
        """Put for each what the function makes of it."""
        for number, choice in enumerate(self._choices):
            if (new := changed(choice)) != choice:
                self._choices[number] = new
                self.dataChanged.emit(self.index(number, 0), self.index(number, 2))

    def _fit(self, choice: Choice) -> str:
        fitness = choice.fitness
        told = words(fitness, translated)
        return f"{told}: {fitness.why}" if fitness.kind == "cannot" and fitness.why else told

    def _files(self, choice: Choice) -> str:
        names = [file.path for file in choice.offer.files[:8]]
        return "\n".join([*names, *(["…"] if len(choice.offer.files) > 8 else [])])
