"""The Hub's models, searched by words and narrowed down by what is known of each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton

from app.icons import icon
from app.look import Look
from app.models_page.figures import count
from app.models_page.filter_bar import FilterBar
from app.models_page.filters import fits_likely, sees
from app.models_page.fitness import Fitness
from app.models_page.rows import Row
from app.models_page.section import Section
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.sources.source import Repository

LIMIT = 100


class Search(Section):
    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__(services, tasks, look, "")
        self.list.setAccessibleName(self.tr("What was found"))
        self.waiting.setAccessibleName(self.tr("Searching the Hub"))
        self._found: dict[str, Repository] = {}
        self._asked: str | None = None
        self._asking = Cancel()
        self._room = 0
        self.field = QLineEdit()
        self.field.setPlaceholderText(self.tr("A model's name, or its maker's"))
        self.field.setAccessibleName(self.tr("Search the Hub"))
        self.field.setClearButtonEnabled(True)
        self._glass = self.field.addAction(
            icon("search", 16, look.theme.muted), QLineEdit.ActionPosition.LeadingPosition
        )
        self.field.returnPressed.connect(self.search)
        self.button = QPushButton(self.tr("Search"))
        self.button.clicked.connect(self.search)
        self.filters = FilterBar()
        self.filters.changed.connect(self._show)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.field, 1)
        row.addWidget(self.button)
        self.above.insertLayout(0, row)
        self.above.insertWidget(1, self.filters)
        self.above.addSpacing(4)
        chips = self.filters
        order = (self.field, self.button, chips.fits, chips.sees, chips.size, chips.licence, self.list)
        for before, after in pairwise(order):
            self.setTabOrder(before, after)
        self.show_empty(self.tr("Search the models that people share on the Hub.\nEach says whether it can run here."))

    def repository(self, key: str) -> Repository:
        return self._found[key]

    def renew(self) -> None:
        """The first time, what most people use is shown."""
        if not self._room:
            self.tasks.run(self.services.oracle.room, self._set_room)
        if self._asked is None or not self.trouble.isHidden():
            self.search()

    def search(self) -> None:
        """An answer that comes after another question was asked is dropped."""
        words = self.field.text().strip()
        self._asked = words
        self._asking.set()
        self.trouble.clear()
        self.waiting.show()

        def work(cancel: Cancel) -> tuple[Repository, ...]:
            import registry.known  # noqa: F401  here, since it takes a moment the first time

            return self.services.source.search(words, LIMIT, cancel)

        self._asking = self.tasks.run(work, self._told, self._not_told)

    def take_focus(self) -> None:
        self.field.setFocus()
        self.field.selectAll()

    def apply_look(self, look: Look) -> None:
        super().apply_look(look)
        self._glass.setIcon(icon("search", 16, look.theme.muted))

    def _set_room(self, room: int) -> None:
        self._room = room
        self._show()

    def _told(self, found: tuple[Repository, ...]) -> None:
        self.waiting.hide()
        self._found = {repository.id: repository for repository in found}
        self._show()
        self.list.scrollToTop()

    def _not_told(self, sentence: str, error: BaseException) -> None:
        self.waiting.hide()
        self._found = {}
        self.rows.set_rows(())
        self.show_empty("")
        self.list.hide()
        self.trouble.show_error(sentence, error)

    def _show(self) -> None:
        chosen = self.filters.filter(self._room)
        shown = [repository for repository in self._found.values() if chosen.passes(repository)]
        self.rows.set_rows([self._row(repository) for repository in shown])
        if self._found and not shown:
            self.show_empty(self.tr("All that was found is filtered out: take a filter away."))
        elif not self._found and self._asked is not None and self.trouble.isHidden():
            self.show_empty(self.tr("Nothing was found. Try fewer words, or only a part of the name."))
        else:
            self.show_empty("")

    def _likely(self, repository: Repository) -> Fitness | None:
        """As far as a name tells; the details look closer."""
        from registry.known import known

        if not known(repository):
            why = self.tr("This version does not know the architecture “{name}”.")
            return Fitness("cannot", why.format(name=repository.architecture))
        fits = fits_likely(repository, self._room)
        if fits is None:
            return None
        return Fitness("memory" if fits else "disk", self.tr("As four bits a weight, the usual quantisation, would."))

    def _row(self, repository: Repository) -> Row:
        marks = [("eye", self.tr("sees pictures"))] if sees(repository) else []
        if repository.gated:
            marks.append(("lock", self.tr("asks you to agree to its conditions")))
        parts = [repository.id.rpartition("/")[0]]
        if repository.licence:
            parts.append(repository.licence)
        return Row(
            key=repository.id,
            title=repository.id.rpartition("/")[2],
            detail=" · ".join(parts),
            aside=f"↓ {count(repository.downloads)}" if repository.downloads else "",
            fitness=self._likely(repository),
            marks=tuple(marks),
        )
