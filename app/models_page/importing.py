"""Models that are dropped on the page, and how far they are on their way into the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QMimeData, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton

from app.elided_label import ElidedLabel
from app.look import Look
from app.models_page.services import How, Services
from app.models_page.tasks import Tasks
from app.notice_line import NoticeLine
from app.throttle import Every
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.library import LibraryModel
    from registry.progress import Progress

SUFFIXES = (".gguf", ".safetensors")
INTERVAL = 0.1


def local_paths(data: QMimeData) -> list[Path]:
    """The model files and the folders that are dropped."""
    paths = [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()]
    return [path for path in paths if path.suffix.lower() in SUFFIXES or path.is_dir()]


class Import(QFrame):
    """A line below the header, hidden while there is nothing to tell. One comes after the other."""

    imported = Signal(str)
    """The name of a model that is in the library now."""

    _progressed = Signal(str, float)

    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self.setObjectName("importing")
        self._services, self._tasks = services, tasks
        self._queue: list[Path] = []
        self._how: How = "reference"
        self._working = False
        self._cancel = Cancel()
        self.text = ElidedLabel()
        self.bar = QProgressBar()
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(160)
        self.bar.setAccessibleName(self.tr("Progress of the import"))
        self.stop_button = QPushButton(self.tr("Cancel"))
        self.stop_button.clicked.connect(self.stop)
        self.refer_button = QPushButton(self.tr("Use it where it is"))
        self.refer_button.setProperty("primary", True)
        self.refer_button.clicked.connect(lambda: self._begin("reference"))
        self.copy_button = QPushButton(self.tr("Copy it"))
        self.copy_button.clicked.connect(lambda: self._begin("copy"))
        self.notice = NoticeLine(look)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 8, 24, 8)
        row.setSpacing(16)
        row.addWidget(self.notice, 1)
        row.addWidget(self.text, 1)
        row.addWidget(self.bar)
        for button in (self.stop_button, self.copy_button, self.refer_button):
            row.addWidget(button)
        self._progressed.connect(self._show_progress)
        self.hide()

    def ask(self, paths: Sequence[Path]) -> None:
        """Whether they are to be used where they are, or copied."""
        self._queue = [*self._queue, *paths]
        if not self._working:
            name = paths[0].name if len(paths) == 1 else self.tr("{n} models").format(n=len(paths))
            self.text.setText(self.tr("Add {name} to the library?").format(name=name))
            self._arrange("asking")
            self.refer_button.setFocus()

    def stop(self) -> None:
        """Leave those that are not whole yet, or put the sentence away."""
        self._queue.clear()
        self._cancel.set()
        self._working = False
        self.hide()

    def apply_look(self, look: Look) -> None:
        self.notice.apply_look(look)

    def _begin(self, how: How) -> None:
        self._how = how
        self._next()

    def _next(self) -> None:
        if self._working or not self._queue:
            return
        path, how, bring = self._queue.pop(0), self._how, self._services.bring
        self._working = True
        every = Every(INTERVAL)

        def told(progress: Progress) -> None:
            if every.due():
                self._progressed.emit(progress.what, progress.done / max(progress.total, 1))

        self._show_progress(self.tr("Adding {name}").format(name=path.name), 0.0)
        self._cancel = self._tasks.run(lambda cancel: bring(path, how, told, cancel), self._brought, self._failed)

    def _show_progress(self, what: str, done: float) -> None:
        if self._working:
            self.text.setText(what)
            self.bar.setValue(round(1000 * done))
            self._arrange("working")

    def _brought(self, model: LibraryModel) -> None:
        self._working = False
        self.hide()
        self.imported.emit(model.name)
        self._next()

    def _failed(self, sentence: str, _: BaseException) -> None:
        """The rest waits until the person has read it."""
        self._working = False
        self._queue.clear()
        self.notice.show_sentence(sentence)
        self._arrange("failed")

    def _arrange(self, state: Literal["asking", "working", "failed"]) -> None:
        if state != "failed":
            self.notice.show_sentence("")
        self.text.setVisible(state != "failed")
        self.bar.setVisible(state == "working")
        for button in (self.refer_button, self.copy_button):
            button.setVisible(state == "asking")
        self.stop_button.setText(self.tr("Close") if state == "failed" else self.tr("Cancel"))
        self.show()
