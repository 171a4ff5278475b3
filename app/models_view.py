"""The Models page in the window: made when it is first asked for, shown in place of the chat, told what is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QStackedWidget

from app.budgets.loaded import held
from app.chat import Chat, ChatState
from app.look import Appearance, Look
from app.model_bar import ModelBar
from app.models_page.desk import Desk
from app.models_page.last_used import LastUsed
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.start_panel import StartPanel

if TYPE_CHECKING:
    from app.models_page.page import ModelsPage


class ModelsView(QObject):
    def __init__(
        self,
        services: Services,
        appearance: Appearance,
        places: QStackedWidget,
        model_bar: ModelBar,
        start: StartPanel,
        chat: Chat,
    ) -> None:
        super().__init__(places)
        self._services = services
        self._appearance = appearance
        self._places = places
        self._bar = model_bar
        self._chat = chat
        self._page: ModelsPage | None = None
        self._started = False
        self._used: Path | None = None
        self._tasks = Tasks(self, threads=1)
        self.desk = Desk(services, self)
        self.desk.changed.connect(lambda _: self._show_downloads())
        appearance.changed.connect(self._apply_look)
        model_bar.library.connect(self.toggle)
        model_bar.downloads.connect(self.show_downloads)
        model_bar.new_chat.connect(self.hide)
        start.models.connect(self.show)
        chat.state_changed.connect(self._on_state)
        places.currentChanged.connect(lambda _: model_bar.show_place(self.shown))

    @property
    def shown(self) -> bool:
        return self._page is not None and self._places.currentWidget() is self._page

    @property
    def page(self) -> ModelsPage:
        if self._page is None:
            from app.models_page.page import ModelsPage

            self._page = ModelsPage(self._services, self.desk, self._appearance.look)
            self._page.load.connect(self._load)
            self._page.back.connect(self.hide)
            self._places.addWidget(self._page)
            self._on_state(self._chat.state)
        return self._page

    def start(self) -> None:
        """Go on with the downloads that an earlier run left, and take note of what is loaded from now on."""
        self._started = True
        self.desk.start()

    def show(self) -> None:
        self._places.setCurrentWidget(self.page)

    def hide(self) -> None:
        """Back to the chat, which is as it was."""
        if self.shown:
            self._places.setCurrentIndex(0)
            self._chat.take_focus()

    def toggle(self) -> None:
        if self.shown:
            self.hide()
        else:
            self.show()

    def show_downloads(self) -> None:
        self.show()
        self.page.show_part("downloads")

    def step_back(self) -> None:
        self.page.step_back()

    def close(self) -> None:
        if self._page is not None:
            self._page.shut_down()
        self._tasks.close()
        self.desk.close()

    def _load(self, model: str) -> None:
        self.hide()
        self._chat.open(model, self.page.model.chosen(model))

    def _on_state(self, state: ChatState) -> None:
        loaded = self._chat.loaded
        self._note_use(Path(loaded.info.path) if loaded is not None else None)
        if self._page is None:
            return
        self._page.set_busy(state in ("loading", "fetching"))
        if loaded is None:
            self._page.set_loaded(None, 0)
        else:
            self._page.set_loaded(Path(loaded.info.path), held(loaded.plan))

    def _note_use(self, path: Path | None) -> None:
        """Once for each time that a model is loaded."""
        if path == self._used or not self._started:
            return
        self._used = path
        if path is not None:
            self._tasks.run(
                lambda _: LastUsed(self._services.last_used).used(path),
                lambda _: self._page.shelf.refresh() if self._page is not None else None,
            )

    def _show_downloads(self) -> None:
        running = self.desk.running
        total = sum(item.nbytes for item in running)
        done = sum(item.done for item in running)
        self._bar.show_downloads(len(running), 100 * done // total if total else 0)

    def _apply_look(self, look: Look) -> None:
        if self._page is not None:
            self._page.apply_look(look)
