"""The details of a model in the library."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from PySide6.QtCore import Signal

from app.budgets.estimate import Estimator
from app.budgets.panel import BudgetPanel
from app.look import Look, label
from app.models_page.action_bar import Deed, Question
from app.models_page.desk import Desk
from app.models_page.facts import Facts
from app.models_page.figures import day, size
from app.models_page.pane import Pane
from app.models_page.services import Services
from app.models_page.shelf import Kept, Shelf
from app.models_page.tasks import Tasks
from app.notice_line import NoticeLine
from app.translated import translated
from engine.cancel import Cancel
from engine.types import Budgets


class ModelPane(Pane):
    load = Signal(str)
    chat = Signal()

    def __init__(self, services: Services, tasks: Tasks, desk: Desk, shelf: Shelf, look: Look) -> None:
        super().__init__()
        self._services, self._tasks = services, tasks
        self._fitted: tuple[Path, int] | None = None
        """What the sliders are about, and what was to be given back then."""
        self.unloading = 0
        """Bytes that the model which is loaded now gives back when another one is."""
        self.budgets = BudgetPanel(tasks, look)
        self.fit = self.budgets.fit
        self.where = label(level="small", tone="muted", wrap=True)
        self.setAccessibleName(self.tr("Details of the model"))
        self._desk, self._shelf = desk, shelf
        self._name = ""
        self._busy = False
        self._progress: float | None = None
        self._outcome = ""
        self.notice = NoticeLine(look)
        self.list = Facts()
        self.body.addWidget(self.notice)
        self.body.addWidget(self.list)
        self.body.addSpacing(8)
        self.body.addWidget(self.budgets)
        self.body.addWidget(self.where)
        self.body.addStretch(1)
        self._moved = False
        self.budgets.changed.connect(self._on_moved)
        self.budgets.answered.connect(self._on_answered)
        shelf.changed.connect(self._renew)
        shelf.progressed.connect(self._on_progress)
        shelf.verified.connect(self._on_verified)

    def show_model(self, name: str) -> None:
        if name != self._name:
            self.actions.answer()
            self._outcome, self._progress = "", None
        self._name = name
        self._renew()

    def chosen(self, model: str) -> Budgets | None:
        """What it is to be loaded with, where that stands on the sliders now."""
        about = self._fitted[0] if self._fitted is not None else None
        if model != str(about) or self.budgets.estimate is None:
            return None
        self._keep_budgets()
        return self.budgets.budgets

    def set_busy(self, busy: bool) -> None:
        """While a model is being loaded, no other can be."""
        self._busy = busy
        self._renew()

    def apply_look(self, look: Look) -> None:
        self.notice.apply_look(look)
        self.budgets.apply_look(look)

    def _renew(self) -> None:
        kept = self._shelf.find(self._name)
        if kept is None:
            return
        today = date.today()
        self.show_head(kept.title, kept.owner, ())
        self.list.show_facts(
            (
                (self.tr("Size"), size(kept.nbytes)),
                (self.tr("Licence"), kept.licence),
                (self.tr("Last used"), day(kept.used, today, translated)),
                (self.tr("In the library since"), day(kept.day, today, translated)),
                (self.tr("Where it lies"), str(kept.path)),
            )
        )
        self.notice.show_sentence(self._damage(kept))
        self._show_budgets(kept)
        self._show_actions(kept)

    def _show_budgets(self, kept: Kept) -> None:
        """For what can be loaded. Those of the model that is loaded are changed where it is told how it runs."""
        loaded = self._shelf.is_loaded(kept)
        shown = kept.sound and not loaded
        self.budgets.setVisible(shown)
        self.where.setVisible(loaded)
        self.where.setText(self.tr("Its memory and context are changed above the chat, where it says how it runs."))
        about = (kept.path, self.unloading) if shown else None
        if about == self._fitted:
            return
        self._fitted, self._moved = about, False
        self.budgets.clear()
        if about is not None:
            path, unloading = about
            services = self._services

            def opened(cancel: Cancel) -> tuple[Estimator, Budgets | None]:
                return services.oracle.estimator_kept(path, unloading, cancel), services.chosen.of(path)

            self.budgets.open(opened)

    def _on_moved(self) -> None:
        self._moved = True

    def _on_answered(self) -> None:
        if self.budgets.runs:
            self._keep_budgets()
        if (kept := self._shelf.find(self._name)) is not None:
            self._show_actions(kept)

    def _keep_budgets(self) -> None:
        if self._moved and self._fitted is not None:
            self._moved = False
            path, budgets = self._fitted[0], self.budgets.budgets
            self._tasks.run(lambda _: self._services.chosen.choose(path, budgets), lambda _: None)

    def _damage(self, kept: Kept) -> str:
        if not kept.broken:
            return kept.problem
        if len(kept.broken) == 1:
            return self.tr("{file} is damaged. Repair fetches it again, and keeps the rest.").format(
                file=kept.broken[0].rpartition("/")[2]
            )
        return self.tr("{n} of its files are damaged. Repair fetches them again, and keeps the rest.").format(
            n=len(kept.broken)
        )

    def _show_actions(self, kept: Kept) -> None:
        loaded, reading = self._shelf.is_loaded(kept), self._shelf.verifying == kept.name
        folder = kept.folder
        if not kept.sound and folder is not None:
            main = Deed(self.tr("Repair"), lambda: self._repair(kept))
        elif not kept.sound:
            main = None
        elif loaded:
            main = Deed(self.tr("Chat with it"), self.chat.emit)
        else:
            # What is left open may always be tried: there may be more memory by then.
            able = not self._busy and (self.budgets.runs or self.budgets.budgets == Budgets())
            main = Deed(
                self.tr("Loading a model…") if self._busy else self.tr("Load"),
                (lambda: self.load.emit(str(kept.path))) if able else None,
            )
        quiet = []
        if reading:
            quiet.append(Deed(self.tr("Stop checking"), self._shelf.stop_verifying))
        elif folder is not None and kept.sound:
            quiet.append(Deed(self.tr("Verify"), lambda: self._shelf.verify(kept)))
        if not loaded and not reading:
            quiet.append(Deed(self.tr("Remove"), lambda: self._ask_to_remove(kept)))
        figures = self.tr("It is loaded now") if loaded else ""
        if reading:
            figures = self.tr("Every byte of it is read · {percent} %").format(
                percent=round(100 * (self._progress or 0))
            )
        self.actions.show_deeds(
            size(kept.nbytes),
            figures or self._outcome,
            main,
            quiet,
            progress=(self._progress or 0.0) if reading else None,
        )

    def _on_progress(self, name: str, progress: float) -> None:
        kept = self._shelf.find(name)
        if name == self._name and kept is not None:
            self._progress = progress
            self._show_actions(kept)

    def _on_verified(self, name: str, broken: int) -> None:
        if name == self._name:
            self._progress = None
            self._outcome = "" if broken else self.tr("All of it is as it came")

    def _repair(self, kept: Kept) -> None:
        assert kept.folder is not None
        self._desk.repair(kept.folder)

    def _ask_to_remove(self, kept: Kept) -> None:
        text, yes = self.tr("Delete it from this computer? {size} become free."), self.tr("Delete")
        if kept.linked:
            text, yes = self.tr("Take it off the list? The files stay where they are."), self.tr("Take off")
        text = text.format(size=size(kept.nbytes))
        self.actions.ask(Question(text, yes, self.tr("Keep it"), lambda: self._shelf.remove(kept)))
