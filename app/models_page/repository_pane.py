"""The details of a repository: its quantisations, how each would run, and the one button."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar

from app.look import Look, label
from app.models_page.action_bar import Deed, Question
from app.models_page.acts import Choice, choice_of
from app.models_page.desk import Desk
from app.models_page.figures import left, of_size, size
from app.models_page.fitness import Fitness, words
from app.models_page.offer_budgets import OfferBudgets
from app.models_page.offer_table import OfferTable
from app.models_page.offer_view import OfferView
from app.models_page.pane import Pane
from app.models_page.repository_head import head
from app.models_page.services import Services
from app.models_page.shelf import Shelf
from app.models_page.suggestion import Suggestion
from app.models_page.tasks import Tasks
from app.models_page.trouble import Trouble
from app.models_page.words import removing, state_of
from app.translated import translated
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.sources.source import Repository

FRESH = 300.0
"""Seconds for which what the Hub told of a repository is not asked for again."""
USUAL = ("Q4_K_M", "UD-Q4_K_XL", "MXFP4", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0")
"""Quantisations that most people take, the most usual one first."""


class RepositoryPane(Pane):
    load = Signal(str)
    chat = Signal()

    def __init__(self, services: Services, tasks: Tasks, fitting: Tasks, desk: Desk, shelf: Shelf, look: Look) -> None:
        super().__init__()
        self.setAccessibleName(self.tr("Details of the model"))
        self._services, self._tasks, self._desk, self._shelf = services, tasks, desk, shelf
        self._suggestion: Suggestion | None = None
        self._repository: Repository | None = None
        self._id = ""
        self._asking = Cancel()
        self._known: dict[str, tuple[float, Repository]] = {}
        """What was told lately, and when."""
        self._busy = False
        self.unloading = 0
        """Bytes that the model which is loaded now gives back when another one is."""
        self.table = OfferTable(self)
        self.offers = OfferView(self.table, look)
        self.budgets = OfferBudgets(services, fitting, look)
        self.trouble = Trouble(services, tasks, look)
        self.waiting = QProgressBar()
        self.waiting.setRange(0, 0)
        self.waiting.setTextVisible(False)
        self.waiting.setAccessibleName(self.tr("Asking the Hub for the files"))
        self.empty = label(tone="muted", wrap=True)
        for part in (self.waiting, self.trouble, self.empty):
            self.body.addWidget(part)
        self.body.addWidget(self.offers, 1)
        self.body.addWidget(self.budgets)
        self.body.addStretch(0)
        self.trouble.again.connect(self._ask)
        order = (
            self.trouble.page_button,
            self.trouble.token,
            self.trouble.keep_button,
            self.trouble.again_button,
            self.offers,
        )
        for before, after in pairwise((*order, *self.actions.quiet, self.actions.main)):
            self.setTabOrder(before, after)
        self.offers.current.connect(lambda _: self._show_actions())
        self.offers.acted.connect(self.actions.main.click)
        desk.changed.connect(lambda _: self._renew())
        shelf.changed.connect(self._renew)

    def show_suggestion(self, suggestion: Suggestion) -> None:
        self._open(suggestion.repository, suggestion, None)

    def show_repository(self, repository: Repository) -> None:
        """One that a search found; its files are asked for."""
        self._open(repository.id, None, repository)

    def set_busy(self, busy: bool) -> None:
        """While a model is being loaded, no other can be."""
        self._busy = busy
        self._show_actions()

    def apply_look(self, look: Look) -> None:
        self.offers.apply_look(look)
        self.trouble.apply_look(look)
        self.budgets.apply_look(look)

    def take_focus(self) -> None:
        self.offers.setFocus()

    @property
    def choice(self) -> Choice | None:
        row = self.offers.currentIndex().row()
        return self.table.choices[row] if 0 <= row < self.table.rowCount() else None

    def _open(self, id: str, suggestion: Suggestion | None, found: Repository | None) -> None:
        if id != self._id:
            self.actions.answer()
            self.trouble.clear()
            self.table.set_choices(())
        elif suggestion == self._suggestion and self._repository is not None and self._lately(id) is not None:
            return
        self._id, self._suggestion, self._repository = id, suggestion, None
        self.trouble.repository = id
        self._show_head(found)
        if (known := self._lately(id)) is not None:
            self._asking.set()
            self._asking = Cancel()
            self._show_repository(known)
        else:
            self._ask()

    def _lately(self, id: str) -> Repository | None:
        told, repository = self._known.get(id, (0.0, None))
        return repository if time.monotonic() - told < FRESH else None

    def _ask(self) -> None:
        id = self._id
        self._asking.set()
        self.trouble.clear()
        self.waiting.show()
        self.offers.hide()
        self.empty.hide()
        self.actions.hide()
        self._asking = self._tasks.run(
            lambda cancel: self._services.source.repository(id, cancel), self._told, self._not_told
        )

    def _told(self, repository: Repository) -> None:
        self._known[repository.id] = (time.monotonic(), repository)
        self._show_repository(repository)

    def _show_repository(self, repository: Repository) -> None:
        from registry.items import offers

        self._repository = repository
        self.waiting.hide()
        self._show_head(repository)
        choices = [self._joined(choice_of(offer, repository.licence)) for offer in offers(repository)]
        suggestion = self._suggestion
        if suggestion is not None:  # what the list says of it stands here, too, until it is looked at more closely
            choices = [replace(each, fitness=suggestion.fitness) if each.recommended else each for each in choices]
        self.table.set_choices(choices)
        self.offers.setVisible(bool(choices))
        self.actions.setVisible(bool(choices))
        self.empty.setVisible(not choices)
        self.empty.setText(self.tr("There is no file here that Millstream can load: choose another model."))
        chosen = min(range(len(choices)), key=lambda number: _rank(choices[number]), default=0)
        if choices:
            self.offers.setCurrentIndex(self.table.index(chosen, 0))
        for choice in choices:
            if not choice.problem:
                self._tasks.run(
                    lambda cancel, offer=choice.offer: self._services.oracle.fit(
                        self._services.source, offer, self.unloading, cancel
                    ),
                    partial(self._fits, repository.id, choice.offer.name),
                    partial(self._does_not_tell, repository.id, choice.offer.name),
                    cancel=self._asking,
                )
        self._show_actions()
        if repository.gated:
            self._look_for_token(repository)

    def _look_for_token(self, repository: Repository) -> None:
        """Its files are listed for everybody, and sent only to who agreed: say so before a download fails."""

        def work(_: Cancel) -> bool:
            from registry import tokens

            return tokens.get() is not None

        def then(there: bool) -> None:
            if not there:
                self.trouble.ask_for_token(
                    self.tr(
                        "{name} needs an access token. Sign in on the Hub's page of the model, agree to its "
                        "conditions, make a token there, and enter it here."
                    ).format(name=self.title.text())
                )

        self._tasks.run(work, then, cancel=self._asking)

    def _not_told(self, sentence: str, error: BaseException) -> None:
        self.waiting.hide()
        self.trouble.show_error(sentence, error)

    def _fits(self, id: str, name: str, fitness: Fitness) -> None:
        if id == self._id:
            self.table.change(lambda choice: replace(choice, fitness=fitness) if choice.offer.name == name else choice)
            self._show_actions()

    def _does_not_tell(self, id: str, name: str, sentence: str, _: BaseException) -> None:
        self._fits(id, name, Fitness("unknown", sentence))

    def _joined(self, choice: Choice) -> Choice:
        """With what is here of it."""
        kept = self._shelf.find(choice.name) if choice.name else None
        sound = kept is not None and kept.sound
        suggestion = self._suggestion
        return replace(
            choice,
            item=self._desk.items.get(choice.wanted.id) if choice.wanted is not None else None,
            kept=kept.model if sound else None,
            loaded=sound and self._shelf.is_loaded(kept),
            recommended=suggestion is not None and choice.offer.name == suggestion.quantisation,
        )

    def _renew(self) -> None:
        self.table.change(self._joined)
        self._show_actions()

    def _show_head(self, repository: Repository | None) -> None:
        self.show_head(*head(self._id, repository, self._suggestion, self.tr))

    def _show_actions(self) -> None:
        choice = self.choice
        self.budgets.show_offer(None if choice is None or choice.problem else choice.offer, self.unloading)
        if choice is None:
            return
        offer, item = choice.offer, choice.item
        figures = " · ".join((size(offer.nbytes), words(choice.fitness, translated)))
        sentence, tone, progress = choice.problem, "muted", None
        if choice.partial and item is not None:
            progress = item.done / max(item.nbytes, 1)
            figures = " · ".join(
                part
                for part in (
                    of_size(item.done, item.nbytes),
                    f"{size(round(item.speed))}/s" if item.speed >= 1 else state_of(item, self.tr),
                    left(item.seconds_left, translated) if item.seconds_left is not None else "",
                )
                if part
            )
            sentence, tone = item.sentence, "warn" if item.state == "paused" else "muted"
        elif choice.fitness.kind == "cannot" and not choice.problem:
            sentence = choice.fitness.why
        quiet = []
        if choice.partial:
            quiet.append(Deed(self.tr("Remove"), self._ask_to_remove))
        main, wanted = self._deed(choice), choice.wanted
        if choice.act == "download" and not choice.fitness.runs and wanted is not None:
            main, quiet = None, [Deed(self.tr("Download anyway"), lambda: self._desk.add(wanted))]
        self.actions.show_deeds(offer.name, figures, main, quiet, progress=progress, sentence=sentence, tone=tone)

    def _deed(self, choice: Choice) -> Deed | None:
        item, kept, wanted = choice.item, choice.kept, choice.wanted
        match choice.act:
            case "download" if wanted is not None:
                return Deed(self.tr("Download"), lambda: self._desk.add(wanted))
            case "pause" if item is not None:
                return Deed(self.tr("Pause"), lambda: self._desk.pause(item.id))
            case "resume" if item is not None:
                return Deed(self.tr("Resume"), lambda: self._desk.resume(item.id))
            case "load" if kept is not None:
                if self._busy:
                    return Deed(self.tr("Loading a model…"))
                return Deed(self.tr("Load"), lambda: self.load.emit(str(kept.path)))
            case "chat":
                return Deed(self.tr("Chat with it"), self.chat.emit)
            case "wait":
                return Deed(self.tr("Downloading elsewhere"))
        return None

    def _ask_to_remove(self) -> None:
        choice = self.choice
        if choice is None or (item := choice.item) is None:
            return
        self.actions.ask(Question(*removing(item, self.tr), lambda: self._desk.remove(item.id)))


def _rank(choice: Choice) -> tuple[bool, int]:
    """What to point at first: the one that is recommended, else the usual one."""
    name = choice.offer.name
    return (not choice.recommended, USUAL.index(name) if name in USUAL else len(USUAL))
