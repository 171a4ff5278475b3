"""The popover that tells how a model runs: where its weights are, and what its memory goes to. Behind a button in it is
what changes that."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QFont, QHideEvent, QKeyEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QFrame,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.look import label
from app.placement import beside, parts, sentences, table
from app.translated import translated
from engine.types import Plan
from engine.units import human_bytes

WIDTH = 300
"""The least that a table takes, in pixels."""
CHANGING = 372
"""Pixels of what changes it."""
GAP = 4
"""Pixels between the button and the popover."""


class PlacementView(QFrame):
    """Opens under a button and closes by Esc or a click elsewhere. Tab goes through the sentence and the tables, the
    arrow keys through a table's cells."""

    change = Signal()
    """What the model may use is to be changed: `show_changing` answers. Whoever does offers it by `offer_change`."""
    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setObjectName("popover")
        self.setAttribute(Qt.WidgetAttribute.WA_NoMouseReplay)  # the click that closes it would open it again
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("How this model runs"))
        self.sentence = label(wrap=True)
        self.sentence.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByKeyboard | Qt.TextInteractionFlag.TextSelectableByMouse
        )
        self.sentence.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.weights = Figures(self.tr("Where the weights are"))
        self.memory = Figures(self.tr("What the memory goes to"))
        self.beside = Figures(self.tr("Memory beside what is granted"))
        self._tables = (self.weights, self.memory, self.beside)
        lines = QVBoxLayout(self)
        lines.setContentsMargins(16, 12, 16, 12)
        lines.setSpacing(12)
        self.change_button = QPushButton(self.tr("Change memory and context"))
        self.change_button.clicked.connect(self.change)
        self.change_button.hide()
        self._offers = False
        self._changing: QWidget | None = None
        self._under: QWidget | None = None
        for part in (self.sentence, *self._tables, self.change_button):
            lines.addWidget(part)

    def set_plan(self, plan: Plan) -> None:
        told = " ".join(sentences(plan, translated))
        self.sentence.setText(told)
        self.sentence.setAccessibleName(told)
        self.setAccessibleDescription(told)
        placed = table(plan, translated)
        tiers = [translated(tier) for tier in placed.tiers]
        self.weights.set_rows(tiers, placed.cells, emphasised=len(placed.cells) - 1)
        granted = (self.tr("memory granted"), plan.ram)
        for figures, sizes, emphasised in (
            (self.memory, (granted, *parts(plan, translated)), 0),
            (self.beside, beside(plan, translated), None),
        ):
            figures.set_rows(("",), [(what, human_bytes(nbytes)) for what, nbytes in sizes], emphasised)
        width = max(WIDTH, *(figures.needed for figures in self._tables))
        self.sentence.setFixedWidth(width)
        for figures in self._tables:
            figures.set_width(width)

    def offer_change(self) -> None:
        self._offers = True
        self.change_button.show()

    def show_changing(self, changing: QWidget) -> None:
        """In place of the figures, until it is closed."""
        if self._changing is not changing:
            self._changing = changing
            changing.setFixedWidth(CHANGING)
            self.layout().addWidget(changing)
        self._show_figures(False)
        if self._under is not None:
            self.open_under(self._under)

    def open_under(self, button: QWidget) -> None:
        """Within the width of the window where that is enough, always within the screen."""
        self._under = button
        self.ensurePolished()
        self.layout().invalidate()  # the style has given it a border
        self.resize(self.sizeHint())
        at = button.mapToGlobal(QPoint(0, button.height() + GAP))
        window, screen = button.window().geometry(), button.screen().availableGeometry()
        for frame in (window, screen):
            at.setX(max(frame.left(), min(at.x(), frame.right() + 1 - self.width())))
        at.setY(max(screen.top(), min(at.y(), screen.bottom() + 1 - self.height())))
        self.move(at)
        self.show()
        self.setFocus(Qt.FocusReason.PopupFocusReason)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._show_figures(True)
        self.closed.emit()

    def _show_figures(self, shown: bool) -> None:
        for part in (self.sentence, *self._tables):
            part.setVisible(shown)
        self.change_button.setVisible(shown and self._offers)
        if self._changing is not None:
            self._changing.setVisible(not shown)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.close()
        else:
            super().keyPressEvent(event)


class Figures(QTableWidget):
    """Sizes under headings, each row with its name. A screen reader tells of a cell with both."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.needed = 0
        """Pixels of width without which text is cut."""
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setShowGrid(False)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setTabKeyNavigation(False)
        self.setCornerButtonEnabled(False)
        for corner in self.findChildren(QAbstractButton):
            corner.setAccessibleName(name)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.horizontalHeader().setDefaultAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for header in (self.horizontalHeader(), self.verticalHeader()):
            header.setSectionsClickable(False)
            header.setHighlightSections(False)

    def set_rows(self, headings: Sequence[str], rows: Sequence[Sequence[str]], emphasised: int | None) -> None:
        """`rows` are a name and its cells each; a line of headings that are all empty is left away."""
        self.ensurePolished()
        self.clear()
        self.setRowCount(len(rows))
        self.setColumnCount(len(headings))
        self.setHorizontalHeaderLabels(headings)
        self.horizontalHeader().setVisible(any(headings))
        for row, (name, *sizes) in enumerate(rows):
            font = QFont(self.font())
            font.setWeight(QFont.Weight.DemiBold if row == emphasised else QFont.Weight.Normal)
            self.setVerticalHeaderItem(row, _cell(name, font, Qt.AlignmentFlag.AlignLeft))
            for column, size in enumerate(sizes):
                self.setItem(row, column, _cell(size, font, Qt.AlignmentFlag.AlignRight))
        self.setCurrentCell(0, 0)
        self.resizeColumnsToContents()
        self.resizeRowsToContents()
        columns, names = self.horizontalHeader(), self.verticalHeader()
        names.setMinimumWidth(0)
        self.needed = names.sizeHint().width() + columns.length()
        self.setFixedHeight(names.length() + (columns.sizeHint().height() if any(headings) else 0))

    def set_width(self, width: int) -> None:
        """The names take what the sizes leave."""
        self.verticalHeader().setFixedWidth(width - self.horizontalHeader().length())
        self.setFixedWidth(width)


def _cell(text: str, font: QFont, side: Qt.AlignmentFlag) -> QTableWidgetItem:
    cell = QTableWidgetItem(text)
    cell.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
    cell.setFont(font)
    return cell
