"""The budgets of the model that answers, changed from where the window tells how it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.chat import Chat
from app.look import Appearance, Look
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.placement_view import PlacementView
from engine.cancel import Cancel
from engine.types import Budgets, Plan

if TYPE_CHECKING:
    from app.budgets.changing import Changing
    from app.budgets.estimate import Estimator


class LoadedBudgets(QObject):
    """Its sliders are made when they are first asked for."""

    def __init__(self, services: Services, appearance: Appearance, view: PlacementView, chat: Chat) -> None:
        super().__init__(view)
        self._services, self._appearance, self._view, self._chat = services, appearance, view, chat
        self._tasks = Tasks(self, threads=1)
        self._changing: Changing | None = None
        view.offer_change()
        view.change.connect(self.begin)
        view.closed.connect(self._leave)
        appearance.changed.connect(self._apply_look)

    @property
    def changing(self) -> Changing:
        if self._changing is None:
            from app.budgets.changing import Changing

            self._changing = Changing(self._tasks, self._appearance.look)
            self._changing.left.connect(self._view.close)
            self._changing.applied.connect(self._apply)
        return self._changing

    def begin(self) -> None:
        """Put the sliders in place of the figures."""
        loaded = self._chat.loaded
        if loaded is None:
            return
        path, plan, asked, services = Path(loaded.info.path), loaded.plan, self._chat.budgets, self._services

        def opened(cancel: Cancel) -> tuple[Estimator, Budgets | None]:
            estimator = services.oracle.estimator_kept(path, held(plan), cancel)
            return estimator, services.chosen.of(path) if asked is None else asked

        self.changing.open(opened)
        self._view.show_changing(self.changing)
        self.changing.cancel_button.setFocus()

    def close(self) -> None:
        """Leave what is under way."""
        self._tasks.close()

    def _apply(self, budgets: Budgets) -> None:
        """The model is loaded anew, and the conversation goes on with it."""
        loaded = self._chat.loaded
        self._view.close()
        if loaded is None:
            return
        path, chosen = Path(loaded.info.path), self._services.chosen
        self._tasks.run(lambda _: chosen.choose(path, budgets), lambda _: None)
        self._chat.reopen(budgets)

    def _leave(self) -> None:
        if self._changing is not None:
            self._changing.panel.clear()

    def _apply_look(self, look: Look) -> None:
        if self._changing is not None:
            self._changing.apply_look(look)


def held(plan: Plan) -> int:
    """Bytes of memory that a model which is loaded gives back."""
    return plan.weights + plan.experts + plan.arena + plan.kv + plan.activations + plan.tables
