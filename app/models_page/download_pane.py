"""The details of a download."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal

from app.look import Look
from app.models_page.action_bar import Deed, Question
from app.models_page.acts import PARTIAL, RUNNING
from app.models_page.desk import Desk
from app.models_page.facts import Facts
from app.models_page.figures import left, of_size, size
from app.models_page.pane import Pane
from app.models_page.services import Services
from app.models_page.shelf import Shelf
from app.models_page.tasks import Tasks
from app.models_page.trouble import Trouble
from app.models_page.words import removing, state_of
from app.notice_line import NoticeLine
from app.translated import translated

if TYPE_CHECKING:
    from registry.downloads.item import Item

FILES = 12
"""So many are told of; the rest are counted."""


class DownloadPane(Pane):
    load = Signal(str)
    chat = Signal()

    def __init__(self, services: Services, tasks: Tasks, desk: Desk, shelf: Shelf, look: Look) -> None:
        super().__init__()
        self.setAccessibleName(self.tr("Details of the download"))
        self._desk, self._shelf = desk, shelf
        self._id = ""
        self._busy = False
        self.notice = NoticeLine(look)
        self.files = Facts()
        self.trouble = Trouble(services, tasks, look)
        self.trouble.again.connect(lambda: desk.resume(self._id))
        self.body.addWidget(self.notice)
        self.body.addWidget(self.trouble)
        self.body.addWidget(self.files)
        self.body.addStretch(1)
        order = (
            self.trouble.page_button,
            self.trouble.token,
            self.trouble.keep_button,
            *self.actions.quiet,
            self.actions.main,
        )
        for before, after in pairwise(order):
            self.setTabOrder(before, after)
        desk.changed.connect(lambda item: self._renew() if item.id == self._id else None)
        shelf.changed.connect(self._renew)

    def show_item(self, id: str) -> None:
        if id != self._id:
            self.actions.answer()
        self._id = id
        self._renew()

    def set_busy(self, busy: bool) -> None:
        """While a model is being loaded, no other can be."""
        self._busy = busy
        self._renew()

    def apply_look(self, look: Look) -> None:
        self.notice.apply_look(look)
        self.trouble.apply_look(look)

    def _renew(self) -> None:
        item = self._desk.items.get(self._id)
        if item is None:
            return
        wanted = item.wanted
        origin = wanted.files[0].repository if wanted is not None else ""
        self.trouble.repository = origin
        self.show_head(item.name, origin, (size(item.nbytes), wanted.licence if wanted is not None else ""))
        sentence = item.sentence if item.state in ("paused", "waiting") else ""
        self.notice.show_sentence("" if item.needs_token else sentence)
        if not item.needs_token:
            self.trouble.clear()
        elif self.trouble.line.sentence != sentence:
            self.trouble.ask_for_token(sentence)
        self._show_files(item)
        self._show_actions(item)

    def _show_files(self, item: Item) -> None:
        told = [(of_size(file.done, file.nbytes), file.name) for file in item.files[:FILES]]
        if len(item.files) > FILES:
            told.append(("", self.tr("and {n} more files").format(n=len(item.files) - FILES)))
        self.files.show_facts(told)

    def _show_actions(self, item: Item) -> None:
        going = item.state in RUNNING
        figures = [state_of(item, self.tr)]
        if item.speed >= 1:
            figures = [f"{size(round(item.speed))}/s"]
            if item.seconds_left is not None:
                figures.append(left(item.seconds_left, translated))
        told = " · ".join(figures)
        self.actions.show_deeds(
            of_size(item.done, item.nbytes),
            told[:1].upper() + told[1:],
            self._deed(item),
            [Deed(self.tr("Remove"), lambda: self._ask_to_remove(item))] if item.state in PARTIAL else [],
            progress=item.done / max(item.nbytes, 1) if going or item.state == "paused" else None,
        )

    def _deed(self, item: Item) -> Deed | None:
        if item.state in RUNNING:
            return Deed(self.tr("Pause"), lambda: self._desk.pause(item.id))
        if item.state == "paused" and item.wanted is not None:
            return Deed(self.tr("Resume"), lambda: self._desk.resume(item.id))
        if item.state != "done" or item.wanted is None:
            return None
        kept = self._shelf.find("/".join(item.wanted.steps()))
        if kept is None or not kept.sound:
            return None
        if self._shelf.is_loaded(kept):
            return Deed(self.tr("Chat with it"), self.chat.emit)
        if self._busy:
            return Deed(self.tr("Loading a model…"))
        return Deed(self.tr("Load"), lambda: self.load.emit(str(kept.path)))

    def _ask_to_remove(self, item: Item) -> None:
        self.actions.ask(Question(*removing(item, self.tr), lambda: self._desk.remove(item.id)))
