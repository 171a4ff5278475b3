"""The models that are here."""

from __future__ import annotations

from datetime import date

from app.look import Look
from app.models_page.away import Away
from app.models_page.figures import day, size
from app.models_page.folder_line import FolderLine
from app.models_page.mover import Mover
from app.models_page.rows import Row
from app.models_page.section import Section
from app.models_page.services import Services
from app.models_page.shelf import Kept, Shelf
from app.models_page.tasks import Tasks
from app.translated import translated


class LibrarySection(Section):
    def __init__(self, services: Services, tasks: Tasks, shelf: Shelf, mover: Mover, look: Look) -> None:
        super().__init__(services, tasks, look, "")
        self.list.setAccessibleName(self.tr("Models in the library"))
        self._shelf = shelf
        self.away = Away(look)
        self.away.again.connect(self.renew)
        self.folder_line = FolderLine(shelf, mover)
        self.above.addWidget(self.away)
        self.below.addWidget(self.folder_line)
        shelf.changed.connect(self._show)
        shelf.failed.connect(self.trouble.show_error)

    def renew(self) -> None:
        self.trouble.clear()
        self._shelf.refresh()

    def take_focus(self) -> None:
        (self.away.again_button if self._shelf.missing else self.list).setFocus()

    def apply_look(self, look: Look) -> None:
        super().apply_look(look)
        self.away.apply_look(look)

    def _show(self) -> None:
        self.rows.set_rows([self._row(kept) for kept in self._shelf.models])
        nothing = self.tr("No model is here yet.\nChoose one under Recommended, or drop a model file here.")
        self.away.show_standing(self._shelf.standing)
        self.show_empty(nothing if self._shelf.known and not self._shelf.models else "", away=self._shelf.missing)
        self.list.choose_first()

    def _row(self, kept: Kept) -> Row:
        used = day(kept.used, date.today(), translated)
        note, tone = (self.tr("last used {day}").format(day=used) if used else ""), ""
        if not kept.sound and not kept.linked:
            note = self.tr("damaged: it can be repaired") if kept.folder is not None else self.tr("damaged")
            tone = "bad"
        elif kept.problem:
            note, tone = self.tr("not found where it lies"), "warn"
        elif self._shelf.is_loaded(kept):
            note = self.tr("loaded now")
        elif self._shelf.verifying == kept.name:
            note = self.tr("its files are being checked")
        return Row(kept.name, kept.title, detail=kept.owner, aside=size(kept.nbytes), note=note, tone=tone)
