"""How a row of a list is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.icons import draw
from app.look import Look
from app.models_page.fit_mark import SIDE, draw_mark
from app.models_page.fitness import words
from app.models_page.rows import ROW, Row
from app.stylesheet import CORNER
from app.translated import translated

SIDE_PADDING, PADDING, GAP = 12, 12, 4
BETWEEN = 4
"""Pixels between two rows, and around them for the frame."""
HEADING = 36
BAR = 4
ICON = 16
DETAIL_LINES = 2


@dataclass(frozen=True)
class _Line:
    """One part of a row, at its place."""

    what: str
    rect: QRect


class RowDelegate(QStyledItemDelegate):
    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def apply_look(self, look: Look) -> None:
        self._look = look

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        row = index.data(ROW)
        if row is None:
            return QSize(0, 0)
        width = option.widget.viewport().width() if option.widget is not None else 400
        lines = list(self._lines(row, QRect(0, 0, width, 0), option.font))
        return QSize(width, lines[-1].rect.bottom() + 1 + PADDING + BETWEEN)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        row = index.data(ROW)
        if row is None:
            return
        theme = self._look.theme
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_frame(painter, option, HEADING if row.heading else 0)
        title, small = self._title(option.font), self._small(option.font)
        for line in self._lines(row, option.rect, option.font):
            rect = line.rect
            match line.what:
                case "heading":
                    self._text(painter, self._heading(option.font), theme.muted, rect, row.heading)
                case "title":
                    self._draw_title(painter, title, small, rect, row)
                case "detail":
                    self._draw_detail(painter, small, rect, row.detail)
                case "fit" if row.fitness is not None:
                    color = QColor(getattr(theme, row.fitness.role))
                    middle = QPointF(rect.x(), rect.y() + (rect.height() - SIDE) / 2)
                    draw_mark(painter, middle, row.fitness.kind, color)
                    beside = rect.adjusted(SIDE + 8, 0, 0, 0)
                    self._text(painter, small, theme.text, beside, words(row.fitness, translated))
                case "bar":
                    self._draw_bar(painter, rect, row.progress or 0.0, row.tone)
                case "note":
                    self._text(painter, small, getattr(theme, row.tone or "muted"), rect, row.note)
        painter.restore()

    def _lines(self, row: Row, rect: QRect, font: QFont) -> Iterator[_Line]:
        """The parts of a row from top to bottom, within a rectangle whose height does not count."""
        top = rect.y() + (HEADING if row.heading else 0)
        left, width = rect.x() + SIDE_PADDING, rect.width() - 2 * SIDE_PADDING
        if row.heading:
            yield _Line("heading", QRect(left, rect.y() + 4, width, HEADING - 8))
        small = QFontMetrics(self._small(font))
        y = top + PADDING
        height = QFontMetrics(self._title(font)).height()
        yield _Line("title", QRect(left, y, width, height))
        y += height
        if row.detail:
            wrapped = small.boundingRect(QRect(0, 0, width, 10_000), Qt.TextFlag.TextWordWrap, row.detail).height()
            height = min(wrapped, DETAIL_LINES * small.lineSpacing())
            yield _Line("detail", QRect(left, y + GAP, width, height))
            y += GAP + height
        if row.progress is not None:
            yield _Line("bar", QRect(left, y + 2 * GAP, width, BAR))
            y += 2 * GAP + BAR
        for what, there in (("fit", row.fitness is not None), ("note", bool(row.note))):
            if there:
                yield _Line(what, QRect(left, y + 6, width, small.height()))
                y += 6 + small.height()

    def _draw_frame(self, painter: QPainter, option: QStyleOptionViewItem, heading: int) -> None:
        theme, state = self._look.theme, option.state
        rect = QRectF(option.rect).adjusted(1, heading + 1, -1, -1 - BETWEEN)
        chosen = bool(state & QStyle.StateFlag.State_Selected)
        if not chosen and not state & QStyle.StateFlag.State_MouseOver:
            return
        focused = chosen and bool(state & QStyle.StateFlag.State_HasFocus)
        pen = QPen(QColor(theme.accent if focused else theme.border), 2 if focused else 1)
        painter.setPen(pen if chosen else Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.raised if chosen else theme.code))
        inset = pen.widthF() / 2 if chosen else 0.0
        painter.drawRoundedRect(rect.adjusted(inset, inset, -inset, -inset), CORNER, CORNER)

    def _draw_title(self, painter: QPainter, title: QFont, small: QFont, rect: QRect, row: Row) -> None:
        theme = self._look.theme
        aside = QFontMetrics(small).horizontalAdvance(row.aside)
        self._text(painter, small, theme.muted, rect, row.aside, Qt.AlignmentFlag.AlignRight)
        room = rect.width() - (aside + 16 if aside else 0) - len(row.marks) * (ICON + 8)
        shown = QFontMetrics(title).elidedText(row.title, Qt.TextElideMode.ElideRight, room)
        self._text(painter, title, theme.text, rect.adjusted(0, 0, room - rect.width(), 0), shown)
        x = rect.x() + QFontMetrics(title).horizontalAdvance(shown) + 8
        scale = painter.device().devicePixelRatioF()
        for name, _ in row.marks:
            drawn = draw(name, round(ICON * scale), theme.muted)
            drawn.setDevicePixelRatio(scale)
            painter.drawPixmap(QPointF(x, rect.y() + (rect.height() - ICON) // 2), drawn)
            x += ICON + 8

    def _draw_detail(self, painter: QPainter, font: QFont, rect: QRect, text: str) -> None:
        """Wrapped, and what finds no room in the last line cut short."""
        painter.setFont(font)
        painter.setPen(QColor(self._look.theme.muted))
        metrics = QFontMetrics(font)
        for number, line in enumerate(wrapped(text, metrics, rect.width(), DETAIL_LINES)):
            y = rect.y() + number * metrics.lineSpacing() + metrics.ascent()
            painter.drawText(QPointF(rect.x(), y), line)

    def _draw_bar(self, painter: QPainter, rect: QRect, progress: float, tone: str) -> None:
        theme = self._look.theme
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.border))
        painter.drawRoundedRect(rect, BAR / 2, BAR / 2)
        done = QRectF(rect.x(), rect.y(), max(rect.width() * progress, BAR if progress else 0), BAR)
        painter.setBrush(QColor(theme.muted if tone else theme.accent))
        painter.drawRoundedRect(done, BAR / 2, BAR / 2)

    @staticmethod
    def _text(
        painter: QPainter,
        font: QFont,
        color: str,
        rect: QRect,
        text: str,
        side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft,
    ) -> None:
        painter.setFont(font)
        painter.setPen(QColor(color))
        cut = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
        painter.drawText(rect, side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, cut)

    def _title(self, font: QFont) -> QFont:
        made = QFont(font)
        made.setPixelSize(self._look.type.body)
        made.setWeight(QFont.Weight.DemiBold)
        return made

    def _small(self, font: QFont) -> QFont:
        made = QFont(font)
        made.setPixelSize(self._look.type.small)
        return made

    def _heading(self, font: QFont) -> QFont:
        made = self._small(font)
        made.setWeight(QFont.Weight.DemiBold)
        return made


def wrapped(text: str, metrics: QFontMetrics, width: int, most: int) -> list[str]:
    """The lines of a text, at most so many, the last one cut short where more would follow."""
    lines: list[str] = []
    line = ""
    words = text.split()
    for number, word in enumerate(words):
        longer = f"{line} {word}".strip()
        if not line or metrics.horizontalAdvance(longer) <= width:
            line = longer
            continue
        lines.append(line)
        line = word
        if len(lines) == most - 1:
            line = " ".join(words[number:])
            break
    lines.append(metrics.elidedText(line, Qt.TextElideMode.ElideRight, width))
    return lines
