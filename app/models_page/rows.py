"""The rows of a list: what each shows, and the Qt model that a view reads them from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.models_page.fitness import Fitness, explained, words
from app.translated import translated

Index = QModelIndex | QPersistentModelIndex
ROW = Qt.ItemDataRole.UserRole + 1
"""The Row itself."""


@dataclass(frozen=True)
class Row:
    """`key` is by which it is known when the rows are renewed. `heading` stands above it, where a group begins.

    `aside` stands at the right of the title; `note` is the last line, coloured by `tone` ("", "warn", "bad").
    `progress` is 0 … 1, or None for none; `marks` are icons after the title, each with its meaning in words.
    """

    key: str
    title: str
    heading: str = ""
    detail: str = ""
    aside: str = ""
    fitness: Fitness | None = None
    note: str = ""
    tone: str = ""
    progress: float | None = None
    marks: tuple[tuple[str, str], ...] = ()

    @property
    def spoken(self) -> str:
        """All of it in one line, for who cannot see it."""
        fit = words(self.fitness, translated) if self.fitness is not None else ""
        percent = f"{100 * self.progress:.0f} %" if self.progress is not None else ""
        parts = (self.heading, self.title, self.aside, *(what for _, what in self.marks), fit, percent, self.note)
        return ", ".join(part.rstrip(".") for part in (*parts, self.detail) if part)


class Rows(QAbstractListModel):
    """A list of rows. Those of the same keys are changed where they are, so that a view keeps its place."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own default)
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return row.spoken
        if role == Qt.ItemDataRole.ToolTipRole:
            return explained(row.fitness, translated) if row.fitness is not None else None
        return row if role == ROW else None

    def set_rows(self, rows: Sequence[Row]) -> None:
        if [row.key for row in rows] == [row.key for row in self._rows]:
            for number, row in enumerate(rows):
                self.change(number, row)
            return
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()

    def change(self, number: int, row: Row) -> None:
        if self._rows[number] != row:
            self._rows[number] = row
            at = self.index(number)
            self.dataChanged.emit(at, at)

    def number_of(self, key: str) -> int:
        """-1 where there is none."""
        return next((number for number, row in enumerate(self._rows) if row.key == key), -1)

    def row(self, number: int) -> Row:
        return self._rows[number]
