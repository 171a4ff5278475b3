"""The table of quantisations as it is seen."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeyEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
)

from app.look import Look
from app.models_page.acts import Choice
from app.models_page.fit_mark import SIDE, draw_mark
from app.models_page.offer_table import CHOICE, FIT, NAME, SIZE, OfferTable

ROW = 40
HIGH_ROW = 60
"""Pixels of a row whose fit stands below its name."""
INSET = 12
STACKED = 560
"""Pixels below which that is so: three columns beside each other would be cut short."""
LEAST = 6
"""Rows that are seen at once, if there are so many; the pane scrolls where there is no room for them."""


class OfferView(QTableView):
    """`current` tells of the row that is walked onto, `acted` of one that is double-clicked or entered.

    Where it is narrow, it has one column: the size stands at the right of the name, and the fit below them.
    """

    current = Signal(int)
    acted = Signal()

    def __init__(self, table: OfferTable, look: Look) -> None:
        super().__init__()
        self._drawing = _Drawing(table, look)
        self.setObjectName("offers")
        self.setAccessibleName(self.tr("Quantisations"))
        self.setModel(table)
        self.setItemDelegate(self._drawing)
        self.setShowGrid(False)
        self.setMouseTracking(True)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionsClickable(False)
        header.setStretchLastSection(True)
        for column in range(FIT):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
        self.doubleClicked.connect(lambda _: self.acted.emit())
        table.modelReset.connect(self.updateGeometry)

    @property
    def stacked(self) -> bool:
        return self._drawing.stacked

    def sizeHint(self) -> QSize:
        """No higher than its rows: what stands below it begins there where there is little room."""
        rows = self.verticalHeader()
        seen = min(rows.length(), LEAST * rows.defaultSectionSize())
        return QSize(super().sizeHint().width(), self.horizontalHeader().sizeHint().height() + seen + 2)

    def minimumSizeHint(self) -> QSize:
        return QSize(super().minimumSizeHint().width(), self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        stacked = self.width() < STACKED
        if stacked != self._drawing.stacked:
            self._drawing.stacked = stacked
            self.verticalHeader().setDefaultSectionSize(HIGH_ROW if stacked else ROW)
            for column in (SIZE, FIT):
                self.setColumnHidden(column, stacked)
            self.updateGeometry()

    def apply_look(self, look: Look) -> None:
        self._drawing.look = look
        self.viewport().update()

    def currentChanged(self, current: QModelIndex, previous: QModelIndex) -> None:
        super().currentChanged(current, previous)
        if current.isValid():
            self.current.emit(current.row())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.acted.emit()
            return
        super().keyPressEvent(event)


class _Drawing(QStyledItemDelegate):
    def __init__(self, table: OfferTable, look: Look) -> None:
        super().__init__()
        self._table = table
        self.look = look
        self.stacked = False

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        choice: Choice = index.data(CHOICE)
        metrics = QFontMetrics(option.font)
        text = str(index.data(Qt.ItemDataRole.DisplayRole))
        if index.column() == NAME and (state := self._table.state(choice)):
            text = f"{text}   {state}"
        return QSize(metrics.horizontalAdvance(text) + 2 * INSET + 8, HIGH_ROW if self.stacked else ROW)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        theme, choice = self.look.theme, index.data(CHOICE)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_back(painter, option, index)
        rect = option.rect.adjusted(INSET, 0, -INSET, 0)
        text = str(index.data(Qt.ItemDataRole.DisplayRole))
        painter.setFont(option.font)
        possible = choice.fitness.runs or choice.kept is not None
        color = QColor(theme.text if possible else theme.muted)
        if self.stacked:
            model, row = self._table, index.row()
            size, fit = (str(model.index(row, column).data()) for column in (SIZE, FIT))
            above, below = rect.adjusted(0, 6, 0, -rect.height() // 2), rect.adjusted(0, rect.height() // 2, 0, -8)
            self._draw_text(painter, above, size, QColor(theme.muted), Qt.AlignmentFlag.AlignRight)
            aside = QFontMetrics(option.font).horizontalAdvance(size) + INSET
            self._draw_name(painter, above.adjusted(0, 0, -aside, 0), text, choice, color)
            painter.setFont(self._small(option.font))
            self._draw_fit(painter, below, fit, choice, color)
        elif index.column() == NAME:
            self._draw_name(painter, rect, text, choice, color)
        elif index.column() == FIT:
            self._draw_fit(painter, rect, text, choice, color)
        else:
            self._draw_text(painter, rect, text, QColor(theme.muted), Qt.AlignmentFlag.AlignRight)
        painter.restore()

    def _draw_name(self, painter: QPainter, rect: QRect, text: str, choice: Choice, color: QColor) -> None:
        self._draw_text(painter, rect, text, color)
        beside = rect.adjusted(QFontMetrics(painter.font()).horizontalAdvance(text) + 12, 0, 0, 0)
        painter.setFont(self._small(painter.font()))
        self._draw_text(painter, beside, self._table.state(choice), QColor(self.look.theme.accent))

    def _draw_fit(self, painter: QPainter, rect: QRect, text: str, choice: Choice, color: QColor) -> None:
        mark = QColor(getattr(self.look.theme, choice.fitness.role))
        draw_mark(painter, QPointF(rect.x(), rect.center().y() + 1 - SIDE / 2), choice.fitness.kind, mark)
        self._draw_text(painter, rect.adjusted(SIDE + 8, 0, 0, 0), text, color)

    def _small(self, font: QFont) -> QFont:
        made = QFont(font)
        made.setPixelSize(self.look.type.small)
        return made

    def _draw_back(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """A rule below each row; the chosen one is filled, and has a bar at its left while the table has the focus."""
        theme, state = self.look.theme, option.state
        rect = QRectF(option.rect)
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, QColor(theme.code))
            if index.column() == NAME:
                focused = option.widget is not None and option.widget.hasFocus()
                bar = QRectF(rect.x(), rect.y(), 3, rect.height())
                painter.fillRect(bar, QColor(theme.accent if focused else theme.muted))
        painter.setPen(QPen(QColor(theme.border), 1))
        bottom = rect.bottom() - 0.5
        painter.drawLine(QPointF(rect.left(), bottom), QPointF(rect.right(), bottom))

    @staticmethod
    def _draw_text(
        painter: QPainter,
        rect: QRect,
        text: str,
        color: QColor,
        side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
    ) -> None:
        painter.setPen(color)
        cut = QFontMetrics(painter.font()).elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
        painter.drawText(rect, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, cut)
