"""What the memory goes to, as a thin bar of stacked parts."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QEvent, QRectF, QSize
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.look import Look
from app.placement import parts
from app.theme import Theme
from app.translated import translated
from engine.types import Plan
from engine.units import human_bytes

HEIGHT = 10
LEAST = 2.0
"""Pixels of the smallest part."""
GAP = 1.0
SHADES = {
    "weights": ("accent", 1.0),
    "experts used lately": ("accent", 0.6),
    "blocks on their way from disk": ("warn", 1.0),
    "the conversation's keys and values": ("text", 0.7),
    "working memory": ("muted", 0.75),
    "rotary positions": ("muted", 0.5),
    "pictures": ("warn", 0.55),
}
"""The colour of each part of a plan, by the words of `app.placement.parts`: a role of the theme, and how much of it."""


class MemoryBar(QWidget):
    """The parts keep their order and their colours; what is not needed stays empty. The tooltip has the words."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self.parts: tuple[tuple[str, int], ...] = ()
        """What each is, and its bytes."""
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("What the memory goes to"))

    def set_plan(self, plan: Plan | None) -> None:
        self.parts = () if plan is None else parts(plan, translated)
        self.setAccessibleDescription("; ".join(f"{what}: {human_bytes(nbytes)}" for what, nbytes in self.parts))
        self.update()

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.update()

    @property
    def words(self) -> str:
        """A line for each part, with a square of its colour before it."""
        shades = _shades(self._look.theme)
        empty = QColor(self._look.theme.border)
        lines = (
            f"<tr><td style='color:{shades.get(what, empty).name()}'>■&nbsp;</td><td>{escape(what)}&nbsp;&nbsp;</td>"
            f"<td align='right'>{human_bytes(nbytes)}</td></tr>"
            for what, nbytes in self.parts
        )
        return f"<table>{''.join(lines)}</table>" if self.parts else ""

    def sizeHint(self) -> QSize:
        return QSize(160, HEIGHT)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.words, self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        whole = QRectF(0, 0, self.width(), self.height())
        round_ends = QPainterPath()
        round_ends.addRoundedRect(whole, HEIGHT / 2, HEIGHT / 2)
        painter.setClipPath(round_ends)
        painter.fillRect(whole, QColor(self._look.theme.border))
        granted, left = max(sum(nbytes for _, nbytes in self.parts), 1), 0.0
        shades = _shades(self._look.theme)
        for what, nbytes in self.parts:
            if (color := shades.get(what)) is not None:
                width = max(self.width() * nbytes / granted - GAP, LEAST)
                painter.fillRect(QRectF(left, 0, width, self.height()), color)
                left += width + GAP
        painter.end()


def _shades(theme: Theme) -> dict[str, QColor]:
    return {translated(what): _mixed(theme, role, share) for what, (role, share) in SHADES.items()}


def _mixed(theme: Theme, role: str, share: float) -> QColor:
    """So much of a colour over the surface."""
    over, under = QColor(getattr(theme, role)), QColor(theme.surface)
    return QColor.fromRgbF(
        *(share * a + (1 - share) * b for a, b in zip(over.getRgbF()[:3], under.getRgbF()[:3], strict=True))
    )
