"""This computer: what was found, in plain words; a text of it for a report; and how fast its drive reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QProgressBar, QScrollArea, QVBoxLayout, QWidget

from app.look import Look, label
from app.models_page.action_bar import ActionBar, Deed
from app.models_page.block_view import BlockView
from app.models_page.machine_words import Block, blocks
from app.models_page.pane import WIDEST
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.models_page.trouble import Trouble
from app.throttle import Every
from app.translated import translated
from engine.cancel import Cancel

if TYPE_CHECKING:
    from registry.probe import Probe
    from registry.progress import Progress

INTERVAL = 0.1


class ThisComputer(QWidget):
    measured = Signal()
    """The drive is known better than before."""

    _progressed = Signal(float)

    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self._services, self._tasks, self._look = services, tasks, look
        self._probe: Probe | None = None
        self._looking = Cancel()
        self._measuring: Cancel | None = None
        self._told: tuple[Block, ...] = ()
        self.views: list[BlockView] = []
        self.waiting = QProgressBar()
        self.waiting.setRange(0, 0)
        self.waiting.setTextVisible(False)
        self.waiting.setAccessibleName(self.tr("Looking at this computer"))
        self.trouble = Trouble(services, tasks, look)
        self.trouble.again.connect(self.renew)
        self._list = QVBoxLayout()
        self._list.setContentsMargins(0, 8, 0, 0)
        self._list.setSpacing(0)
        inner = QWidget()
        inner.setMaximumWidth(WIDEST)
        column = QVBoxLayout(inner)
        column.setContentsMargins(23, 23, 23, 24)  # with the frame around it as far in as elsewhere
        column.setSpacing(8)
        column.addWidget(label(self.tr("This computer"), level="display", wrap=True))
        column.addWidget(
            label(
                self.tr("What Millstream found here. How well a model runs follows from it."), tone="muted", wrap=True
            )
        )
        column.addWidget(self.waiting)
        column.addWidget(self.trouble)
        column.addLayout(self._list)
        column.addStretch(1)
        self.scroll = QScrollArea()
        self.scroll.setObjectName("computer")
        self.scroll.setAccessibleName(self.tr("What was found on this computer"))
        self.scroll.setWidgetResizable(True)
        self.scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll.setWidget(inner)
        self.actions = ActionBar()
        around = QVBoxLayout(self)
        around.setContentsMargins(0, 0, 0, 0)
        around.setSpacing(0)
        around.addWidget(self.scroll, 1)
        around.addWidget(self.actions)
        self._progressed.connect(self._show_written)
        self._show_deeds()

    def renew(self) -> None:
        """Look anew; what was found before stays until then."""
        if self._measuring is not None:
            return
        self.trouble.clear()
        self._looking.set()
        self.waiting.setVisible(self._probe is None)
        self._looking = self._tasks.run(self._services.oracle.machine, self._found, self._not_found)

    def take_focus(self) -> None:
        """Where the keyboard is when this comes to the front."""
        self.scroll.setFocus()

    def copy(self) -> None:
        """Have the clipboard hold the text. It is in English, as whoever reads the reports expects it."""
        from registry.probe import report

        if self._probe is not None:
            QGuiApplication.clipboard().setText(report(self._probe))
            self._show_deeds(self.tr("Copied. Paste it into your report."))

    def measure(self) -> None:
        every = Every(INTERVAL)

        def told(progress: Progress) -> None:
            if every.due() or progress.done == progress.total:
                self._progressed.emit(progress.done / max(progress.total, 1))

        self.trouble.clear()
        self._looking.set()
        measure = self._services.oracle.measure
        self._measuring = self._tasks.run(lambda cancel: measure(told, cancel), self._measured, self._not_measured)
        self.waiting.show()
        self._show_deeds()

    def stop(self) -> None:
        """Leave the measuring."""
        if self._measuring is not None:
            self._measuring.set()
            self._measuring = None
            self.renew()
            self._show_deeds()

    def apply_look(self, look: Look) -> None:
        self._look = look
        self.trouble.apply_look(look)
        for view in self.views:
            view.apply_look(look)

    def _found(self, probe: Probe) -> None:
        self._probe = probe
        self.waiting.hide()
        told = blocks(probe, translated)
        if told != self._told:
            self._told = told
            for view in self.views:
                self._list.removeWidget(view)
                view.hide()
                view.deleteLater()
            self.views = [BlockView(block, self._look) for block in told]
            for view in self.views:
                self._list.addWidget(view)
        self._show_deeds(self.actions.told)

    def _not_found(self, sentence: str, error: BaseException) -> None:
        self.waiting.hide()
        self.trouble.show_error(sentence, error)

    def _measured(self, _: None) -> None:
        self._measuring = None
        self._show_deeds(self.tr("The drive was measured."))
        self.renew()
        self.measured.emit()

    def _not_measured(self, sentence: str, _: BaseException) -> None:
        self._measuring = None
        self.waiting.hide()
        self._show_deeds()
        self.trouble.show_error(sentence)

    def _show_written(self, done: float) -> None:
        """A file to read, on a drive that has none; then it is read."""
        if self._measuring is not None:
            self.waiting.setVisible(done >= 1.0)
            self._show_deeds(written=done if done < 1.0 else None)

    def _show_deeds(self, told: str = "", written: float | None = None) -> None:
        if self._measuring is not None:
            writing = self.tr("A file is written, to be read and deleted again.")
            reading = self.tr("It is read for about two seconds.")
            self.actions.show_deeds(
                self.tr("Measuring the drive"),
                reading if written is None else writing,
                Deed(self.tr("Stop"), self.stop),
                progress=written,
            )
            return
        known = self._probe is not None
        self.actions.show_deeds(
            self.tr("For a bug report"),
            told or self.tr("The text names neither you nor this computer."),
            Deed(self.tr("Copy"), self.copy if known else None),
            [Deed(self.tr("Measure the drive"), self.measure if known else None)],
        )
