"""What is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt

from app.look import Look
from app.models_page.acts import RUNNING
from app.models_page.away import Away
from app.models_page.desk import Desk
from app.models_page.figures import left, of_size, size
from app.models_page.rate import RateChip
from app.models_page.rows import Row
from app.models_page.section import Section
from app.models_page.services import Services
from app.models_page.shelf import Shelf
from app.models_page.tasks import Tasks
from app.models_page.words import state_of
from app.translated import translated

if TYPE_CHECKING:
    from registry.downloads.item import Item


class Transfers(Section):
    """Renewed by what the downloads tell alone."""

    def __init__(self, services: Services, tasks: Tasks, desk: Desk, shelf: Shelf, look: Look) -> None:
        super().__init__(services, tasks, look, "")
        self.list.setAccessibleName(self.tr("Downloads"))
        self._desk, self._shelf = desk, shelf
        self.away = Away(look)
        self.away.again.connect(shelf.refresh)
        self.above.addWidget(self.away)
        self.rate = RateChip()
        self.rate.chosen.connect(lambda: desk.limit(self.rate.rate))
        self.above.addWidget(self.rate, 0, Qt.AlignmentFlag.AlignLeft)
        desk.rated.connect(self._show_rate)
        self._show_rate()
        self.above.addSpacing(4)
        self.setTabOrder(self.rate, self.list)
        desk.changed.connect(lambda _: self._show())
        shelf.changed.connect(self._show)
        desk.failed.connect(self.trouble.show_error)
        self._show()

    def renew(self) -> None:
        self.trouble.clear()
        self._desk.look_again()
        self._shelf.refresh()
        self._show()

    def take_focus(self) -> None:
        (self.away.again_button if self._shelf.missing else self.list).setFocus()

    def apply_look(self, look: Look) -> None:
        super().apply_look(look)
        self.away.apply_look(look)

    def _show(self) -> None:
        self.rows.set_rows([self._row(item) for item in reversed(self._desk.items.values())])
        nothing = self.tr("Nothing is being downloaded.\nChoose a model under Recommended or Search.")
        self.away.show_standing(self._shelf.standing)
        self.rate.setVisible(bool(self._desk.items) and not self._shelf.missing)
        self.show_empty("" if self._desk.items else nothing, away=self._shelf.missing)
        if self.isVisible():
            self.list.choose_first()

    def _show_rate(self) -> None:
        self.rate.show_rate(self._desk.rate)

    def _row(self, item: Item) -> Row:
        note, tone = state_of(item, self.tr), "muted" if item.state == "paused" else ""
        if item.speed >= 1:
            note = f"{size(round(item.speed))}/s"
            if item.seconds_left is not None:
                note = f"{note} · {left(item.seconds_left, translated)}"
        if item.sentence and item.state in ("paused", "waiting"):
            note, tone = item.sentence, "warn"
        there = item.state in (*RUNNING, "paused")
        return Row(
            key=item.id,
            title=item.name,
            aside=of_size(item.done, item.nbytes) if there else size(item.nbytes),
            note=note[:1].upper() + note[1:],
            tone=tone,
            progress=item.done / max(item.nbytes, 1) if there else None,
        )
