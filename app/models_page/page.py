"""The Models page: its sections, the details beside them, and the way from one to the other."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.look import Look
from app.models_page.computer import ThisComputer
from app.models_page.cut_line import CutLine
from app.models_page.desk import Desk
from app.models_page.download_pane import DownloadPane
from app.models_page.folder_pane import FolderPane, Mode
from app.models_page.header import Header, Part
from app.models_page.importing import Import, local_paths
from app.models_page.library import LibrarySection
from app.models_page.model_pane import ModelPane
from app.models_page.mover import Mover
from app.models_page.pane import Pane
from app.models_page.recommended import Recommended
from app.models_page.repository_pane import RepositoryPane
from app.models_page.search import Search
from app.models_page.section import Section
from app.models_page.services import Services
from app.models_page.shelf import Shelf
from app.models_page.tasks import Tasks
from app.models_page.transfers import Transfers

ONE_COLUMN = 860
"""Pixels below which the list and the details take turns."""
LIST = 448


class ModelsPage(QWidget):
    """`load` asks for a model by its path, `back` for the chat."""

    load = Signal(str)
    back = Signal()

    def __init__(self, services: Services, desk: Desk, look: Look) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAcceptDrops(True)
        self._inside = False
        """Whether the details are in front, where there is room for only one of the two."""
        self.part: Part = "recommended"
        self.desk = desk
        self.tasks = Tasks(self)
        self.fitting = Tasks(self, threads=1)
        """For the sliders, whose answers wait for nothing else."""
        self.shelf = Shelf(services, self.tasks, self)
        self.header = Header()
        self.header.back.connect(self.step_back)
        self.header.chosen.connect(self.show_part)
        self.recommended = Recommended(services, self.tasks, look)
        self.mover = Mover(services, desk, self.shelf, self)
        self.library = LibrarySection(services, self.tasks, self.shelf, self.mover, look)
        self.downloads = Transfers(services, self.tasks, desk, self.shelf, look)
        self.search = Search(services, self.tasks, look)
        self.sections: dict[Part, Section] = {
            "recommended": self.recommended,
            "library": self.library,
            "downloads": self.downloads,
            "search": self.search,
        }
        self.computer = ThisComputer(services, self.tasks, look)
        self.nothing = Pane()
        self.nothing.actions.hide()
        self.nothing.body.addStretch(1)
        self.repository = RepositoryPane(services, self.tasks, self.fitting, desk, self.shelf, look)
        self.model = ModelPane(services, self.fitting, desk, self.shelf, look)
        self.download = DownloadPane(services, self.tasks, desk, self.shelf, look)
        self.folder = FolderPane(self.mover, desk, self.shelf, look)
        self.cut = CutLine(self.shelf, self.mover, look)
        self.importing = Import(services, self.tasks, look)
        self._lists = QStackedWidget()
        self._details = QStackedWidget()
        self._details.setObjectName("details")
        for section in self.sections.values():
            self._lists.addWidget(section)
        for pane in (self.nothing, self.repository, self.model, self.download, self.folder):
            self._details.addWidget(pane)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self._lists)
        self._splitter.addWidget(self._details)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setSizes([LIST, 2 * LIST])
        self._both = QStackedWidget()
        self._both.addWidget(self._splitter)
        self._both.addWidget(self.computer)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.cut)
        column.addWidget(self.importing)
        column.addWidget(self._both, 1)

        for part, section in self.sections.items():
            section.current.connect(lambda key, part=part: self._on_current(part, key))
            section.opened.connect(lambda key, part=part: self._on_opened(part, key))
        for pane in (self.repository, self.model, self.download):
            pane.load.connect(self.load)
            pane.chat.connect(self.back)
        desk.arrived.connect(lambda _: self.shelf.refresh())
        desk.changed.connect(lambda _: self._count_downloads())
        self.shelf.changed.connect(self._look_for_gone)
        self.shelf.returned.connect(desk.go_on)
        self.library.folder_line.asked.connect(lambda: self._show_folder("move"))
        for section in (self.library, self.downloads):
            section.away.elsewhere.connect(lambda: self._show_folder("choose"))
        self.cut.went_on.connect(self._show_move)
        self.folder.done.connect(lambda: self.show_part("library"))
        self.folder.left.connect(lambda: self.show_part(self.part))
        self.importing.imported.connect(self._on_imported)
        self.computer.measured.connect(self.recommended.forget)
        self.apply_look(look)
        self._count_downloads()
        self._arrange()

    def show_part(self, part: Part) -> None:
        """Bring a section to the front, and have it up to date."""
        self.part = part
        self._inside = False
        self.header.tabs[part].setChecked(True)
        if part == "computer":
            self._both.setCurrentWidget(self.computer)
            self.computer.renew()
            if self.isVisible():
                self.computer.take_focus()
            return
        self._both.setCurrentWidget(self._splitter)
        section = self.sections[part]
        self._lists.setCurrentWidget(section)
        section.renew()
        row = section.list.row
        if row is not None:
            self._show_details(part, row.key)
        else:
            hint = self.tr("Choose a model to see how it would run here.") if part == "search" else ""
            self.nothing.show_head("", "", (hint,))
            self._details.setCurrentWidget(self.nothing)
            if not self._narrow and part != "search":
                section.list.choose_first()
        self._arrange()
        if self.isVisible():
            section.take_focus()

    def step_back(self) -> None:
        """From the details to the list where they take turns, else to the chat."""
        if self._narrow and self._inside:
            self._inside = False
            self._arrange()
            self.sections[self.part].take_focus()
        else:
            self.back.emit()

    def set_loaded(self, path: Path | None, nbytes: int) -> None:
        """Which model answers, and the memory that it gives back when another one is loaded."""
        self.repository.unloading = self.model.unloading = nbytes
        if path != self.shelf.loaded:
            self.shelf.set_loaded(path)

    def set_busy(self, busy: bool) -> None:
        """While a model is being loaded, no other can be."""
        for pane in (self.repository, self.model, self.download):
            pane.set_busy(busy)

    def apply_look(self, look: Look) -> None:
        self.header.apply_look(look)
        for section in self.sections.values():
            section.apply_look(look)
        for pane in (self.repository, self.model, self.download):
            pane.apply_look(look)
        self.computer.apply_look(look)
        self.folder.apply_look(look)
        self.cut.apply_look(look)
        self.importing.apply_look(look)

    def shut_down(self) -> None:
        """Leave all work that is under way."""
        self.fitting.close()
        self.mover.close()
        self.tasks.close()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.shelf.refresh()
        self.show_part(self.part)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._details.currentWidget().actions.answer()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_paths(event.mimeData()):
            _take_a_copy(event)

    def dropEvent(self, event: QDropEvent) -> None:
        """A model's file or folder; pictures go on to the window."""
        if paths := local_paths(event.mimeData()):
            _take_a_copy(event)
            self.importing.ask(paths)

    @property
    def _narrow(self) -> bool:
        return self.width() < ONE_COLUMN

    def _on_current(self, part: Part, key: str) -> None:
        if part == self.part and not self._narrow:
            self._show_details(part, key)

    def _on_opened(self, part: Part, key: str) -> None:
        self._show_details(part, key)
        self._inside = True
        self._arrange()
        if self._narrow:
            self._details.currentWidget().take_focus()

    def _show_details(self, part: Part, key: str) -> None:
        match part:
            case "recommended":
                self.repository.show_suggestion(self.recommended.suggestion(key))
                self._details.setCurrentWidget(self.repository)
            case "search":
                self.repository.show_repository(self.search.repository(key))
                self._details.setCurrentWidget(self.repository)
            case "library":
                self.model.show_model(key)
                self._details.setCurrentWidget(self.model)
            case "downloads":
                self.download.show_item(key)
                self._details.setCurrentWidget(self.download)

    def _show_folder(self, mode: Mode) -> None:
        """Another folder for the models, in the details."""
        self.folder.open(mode)
        self._details.setCurrentWidget(self.folder)
        self._inside = True
        self._arrange()
        self.folder.take_focus()

    def _show_move(self) -> None:
        self.show_part("library")
        self._show_folder("move")

    def _arrange(self) -> None:
        self._lists.setVisible(not (self._narrow and self._inside))
        self._details.setVisible(not self._narrow or self._inside)
        self.header.title.setVisible(self.width() >= 640)

    def _look_for_gone(self) -> None:
        """What was shown may have been removed."""
        if self._details.currentWidget() is self.folder:
            return
        if self.part in ("library", "downloads") and self.sections[self.part].list.row is None:
            self._details.setCurrentWidget(self.nothing)
            self._inside = False
            self._arrange()

    def _count_downloads(self) -> None:
        running = len(self.desk.running)
        self.header.show_running(running)
        self._look_for_gone()

    def _on_imported(self, name: str) -> None:
        self.show_part("library")
        if not self.library.list.choose(name):
            self.library.list.expect(name)


def _take_a_copy(event: QDropEvent) -> None:
    """Whatever was proposed: a file manager deletes what has been moved."""
    event.setDropAction(Qt.DropAction.CopyAction)
    event.accept()
