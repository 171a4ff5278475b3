"""What went wrong, calmly, with what to do: try again, or give the access token that is asked for."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.look import Look, label
from app.models_page.services import Services
from app.models_page.tasks import Tasks
from app.notice_line import NoticeLine
from engine.cancel import Cancel
from engine.errors import DownloadError


class Trouble(QWidget):
    """Hidden while there is none."""

    again = Signal()
    """The person asks to try again, after what was to be done is done."""

    def __init__(self, services: Services, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self._services = services
        self._tasks = tasks
        self.line = NoticeLine(look)
        self.again_button = QPushButton(self.tr("Try again"))
        self.again_button.clicked.connect(self.again)
        self.repository = ""
        """Whose page on the Hub is offered together with the field for the token."""
        self.page_button = QPushButton(self.tr("Open its page on the Hub"))
        self.page_button.clicked.connect(self._open_page)
        self.form = QWidget()
        asked = label(self.tr("Access token"), level="author")
        self.token = QLineEdit()
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText("hf_…")
        self.token.setAccessibleName(self.tr("Access token"))
        self.token.returnPressed.connect(self._keep)
        asked.setBuddy(self.token)
        self.keep_button = QPushButton(self.tr("Keep it and try again"))
        self.keep_button.clicked.connect(self._keep)
        where = label(
            self.tr("It is kept in this system's keyring, and sent to the Hub alone."),
            level="small",
            tone="muted",
            wrap=True,
        )
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.token, 1)
        row.addWidget(self.keep_button)
        lines = QVBoxLayout(self.form)
        lines.setContentsMargins(24, 4, 0, 0)
        lines.setSpacing(4)
        lines.addWidget(self.page_button, 0, Qt.AlignmentFlag.AlignLeft)
        lines.addSpacing(8)
        lines.addWidget(asked)
        lines.addLayout(row)
        lines.addWidget(where)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.line)
        column.addWidget(self.form)
        again = QHBoxLayout()
        again.setContentsMargins(24, 0, 0, 0)
        again.addWidget(self.again_button, 0, Qt.AlignmentFlag.AlignLeft)
        again.addStretch(1)
        column.addLayout(again)
        self.hide()

    def show_error(self, sentence: str, error: BaseException | None = None) -> None:
        from registry.sources.source import needs_token

        if error is not None and needs_token(error):
            self.ask_for_token(sentence)
            return
        self.line.show_sentence(sentence)
        self.form.hide()
        self.again_button.setVisible(error is not None)
        self.show()

    def ask_for_token(self, sentence: str) -> None:
        self.line.show_sentence(sentence)
        self.page_button.setVisible(bool(self.repository))
        self.form.show()
        self.again_button.hide()
        self.keep_button.setEnabled(True)
        self.show()

    def clear(self) -> None:
        self.line.show_sentence("")
        self.token.clear()
        self.hide()

    def apply_look(self, look: Look) -> None:
        self.line.apply_look(look)

    def _open_page(self) -> None:
        from registry.sources.hub_environment import page

        try:
            QDesktopServices.openUrl(QUrl(page(self.repository)))
        except DownloadError as error:
            self.line.show_sentence(str(error))

    def _keep(self) -> None:
        """The keyring may ask the person to unlock it first."""
        given = self.token.text()

        def work(_: Cancel) -> None:
            from registry import tokens

            tokens.set(given)
            self._services.renew()

        self.keep_button.setEnabled(False)
        self._tasks.run(work, lambda _: self._kept(), self._not_kept)

    def _kept(self) -> None:
        self.clear()
        self.again.emit()

    def _not_kept(self, sentence: str, _: BaseException) -> None:
        self.keep_button.setEnabled(True)
        self.line.show_sentence(sentence)
        self.token.setFocus()
