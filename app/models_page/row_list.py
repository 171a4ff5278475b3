"""A list of rows that is walked through with the arrow keys."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QListView

from app.look import Look
from app.models_page.row_delegate import RowDelegate
from app.models_page.rows import ROW, Row, Rows


class RowList(QListView):
    """`current` tells of each row that is walked onto, `opened` of one that is clicked or entered."""

    current = Signal(str)
    opened = Signal(str)

    def __init__(self, rows: Rows, look: Look, name: str) -> None:
        super().__init__()
        self._key = ""
        self._drawing = RowDelegate(look)
        self.setObjectName("rows")
        self.setAccessibleName(name)
        self.setModel(rows)
        self.setItemDelegate(self._drawing)
        self.setMouseTracking(True)
        self.setResizeMode(QListView.ResizeMode.Adjust)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # so that rows keep their width
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.verticalScrollBar().setSingleStep(24)
        self.clicked.connect(lambda index: self.opened.emit(index.data(ROW).key))
        self.verticalScrollBar().rangeChanged.connect(lambda _, most: self.verticalScrollBar().setEnabled(most > 0))
        self.verticalScrollBar().setEnabled(False)
        rows.modelReset.connect(self._restore)

    @property
    def row(self) -> Row | None:
        """The one that is chosen."""
        return self.currentIndex().data(ROW) if self.selectionModel().hasSelection() else None

    def choose(self, key: str) -> bool:
        """Go to a row: → whether it is there."""
        number = self.model().number_of(key)
        if number >= 0:
            self.setCurrentIndex(self.model().index(number))
        return number >= 0

    def expect(self, key: str) -> None:
        """Go to a row as soon as there is one of this key."""
        self._key = key

    def choose_first(self) -> None:
        if not self.selectionModel().hasSelection() and self.model().rowCount():
            self.setCurrentIndex(self.model().index(max(0, self.currentIndex().row())))

    def apply_look(self, look: Look) -> None:
        self._drawing.apply_look(look)
        self.scheduleDelayedItemsLayout()
        self.viewport().update()

    def currentChanged(self, current: QModelIndex, previous: QModelIndex) -> None:
        super().currentChanged(current, previous)
        if current.isValid():
            self._key = current.data(ROW).key
            self.current.emit(self._key)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Qt makes the first row the current one, without choosing it."""
        super().focusInEvent(event)
        self.choose_first()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.row is not None:
            self.opened.emit(self.row.key)
            return
        super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.scheduleDelayedItemsLayout()  # heights follow from the width

    def _restore(self) -> None:
        """Rows came or went: stay where it was, as far as that is still there."""
        if self._key and not self.choose(self._key):
            self._key = ""
