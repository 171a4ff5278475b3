"""The window: its parts, its shortcuts, its place on the screen."""

from __future__ import annotations

import logging
import os
import signal
import sys

from PySide6.QtCore import QByteArray, QEvent, QSettings, QSize, Qt
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QMainWindow, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from app.application import make_application, open_settings, start_log
from app.bridge import Bridge
from app.budgets.loaded import LoadedBudgets
from app.chat import Chat
from app.composer import Composer
from app.conversation import Conversation
from app.local_engine import STARTER, load_local
from app.look import Appearance, Look
from app.model_bar import ModelBar
from app.models_page.services import Services, own_services
from app.models_view import ModelsView
from app.places import log_file, settings_file
from app.start_panel import StartPanel

FIRST_SIZE = QSize(960, 720)
LEAST_SIZE = QSize(420, 480)


class Window(QMainWindow):
    """Takes what it needs, and owns the bridge: closing the window ends the engine's thread, and stops downloads."""

    def __init__(
        self, bridge: Bridge, appearance: Appearance, settings: QSettings, services: Services | None = None
    ) -> None:
        """`services` are what the Models page works with, by default the person's own."""
        super().__init__()
        self._settings = settings
        self.bridge = bridge
        self.setWindowTitle("Millstream")
        self.setMinimumSize(LEAST_SIZE)
        self.setAcceptDrops(True)
        look = appearance.look
        self.model_bar = ModelBar(look)
        self.start = StartPanel()
        self.conversation = Conversation(look)
        self.composer = Composer(look)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.start)
        self.pages.addWidget(self.conversation)

        middle = QWidget()
        middle.setObjectName("page")
        column = QVBoxLayout(middle)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        conversing = QWidget()
        below = QVBoxLayout(conversing)
        below.setContentsMargins(0, 0, 0, 0)
        below.setSpacing(0)
        below.addWidget(self.pages, 1)
        below.addWidget(self.composer)
        self.places = QStackedWidget()
        self.places.addWidget(conversing)
        column.addWidget(self.model_bar)
        column.addWidget(self.places, 1)
        # A splitter, because a list of chats and an inspector stand beside the conversation.
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(middle)
        self.setCentralWidget(self.splitter)

        self.chat = Chat(bridge, self.model_bar, self.start, self.conversation, self.composer, self.pages)
        services = services or own_services()
        self.models = ModelsView(services, appearance, self.places, self.model_bar, self.start, self.chat)
        self.budgets = LoadedBudgets(services, appearance, self.model_bar.placement, self.chat)
        appearance.changed.connect(self._apply_look)
        for keys, action in (
            (QKeySequence.StandardKey.New, self.chat.new_chat),
            (QKeySequence.StandardKey.Cancel, self._escape),
            (QKeySequence.StandardKey.Close, self.close),
            (QKeySequence.StandardKey.Quit, self.close),
        ):
            for sequence in QKeySequence.keyBindings(keys):
                QShortcut(sequence, self, action)
        QShortcut(QKeySequence("Ctrl+Shift+M"), self, self.models.toggle)
        self._restore_place()
        self.composer.draft.setFocus()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Gone from the screen at once; the engine stops at its next look at the cancel flag."""
        self._settings.setValue("window/geometry", self.saveGeometry())
        self._settings.sync()
        self.hide()
        self.composer.pictures.shut_down()
        self.models.close()
        self.budgets.close()
        self.bridge.close()
        event.accept()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if self.composer.takes(event.mimeData()):
            _take_a_copy(event)

    def dropEvent(self, event: QDropEvent) -> None:
        """Pictures may be dropped anywhere."""
        self.composer.take(event.mimeData())
        _take_a_copy(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange and not self.isMinimized():
            self.conversation.show_pending()

    def _escape(self) -> None:
        if self.models.shown:
            self.models.step_back()
        else:
            self.chat.stop()

    def _restore_place(self) -> None:
        place = self._settings.value("window/geometry")
        if not isinstance(place, QByteArray) or not self.restoreGeometry(place):
            self.resize(FIRST_SIZE)

    def _apply_look(self, look: Look) -> None:
        for part in (self.model_bar, self.conversation, self.composer):
            part.apply_look(look)


def _take_a_copy(event: QDropEvent) -> None:
    """Whatever was proposed: a file manager deletes what has been moved."""
    event.setDropAction(Qt.DropAction.CopyAction)
    event.accept()


def open_window(model: str | None = None) -> int:
    """Show the window, load the model (the starter by default) in the background, and stay until the window is closed:
    → the exit code."""
    start_log(log_file())
    # Ctrl+C in the terminal ends the program: Python's own handler would wait for the next event.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    application = make_application(sys.argv[:1])
    window = Window(Bridge(load_local), Appearance(application), open_settings(settings_file()))
    window.show()
    window.models.start()
    window.chat.load(model or STARTER)
    code = application.exec()
    if not window.bridge.close():
        # A QThread must not be destroyed while it runs, and this one does not listen.
        logging.getLogger(__name__).warning("the engine's thread did not end in time")
        logging.shutdown()
        os._exit(code)
    return code
