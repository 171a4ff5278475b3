"""What stands in place of a list while the drive of the models is not there, and above one that cannot be added to."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.icons import Picture
from app.look import Look, breakable, label
from app.models_page.standing import Standing, shortened

SIDE = 40


class Away(QWidget):
    """Hidden while all is well."""

    again = Signal()
    elsewhere = Signal()
    """The person wants another folder."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._picture = Picture("drive", SIDE, look.theme.muted)
        self.title = label(level="title", wrap=True)
        self.sentence = label(wrap=True)
        self.path = label(level="small", tone="muted", wrap=True)
        self.path.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.rest = label(level="small", tone="muted", wrap=True)
        self.again_button = QPushButton(self.tr("Look again"))
        self.again_button.setProperty("primary", True)
        self.again_button.clicked.connect(self.again)
        self.elsewhere_button = QPushButton(self.tr("Choose another folder…"))
        self.elsewhere_button.clicked.connect(self.elsewhere)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.again_button)
        buttons.addWidget(self.elsewhere_button)
        buttons.addStretch(1)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(8)
        self._column.addWidget(self._picture)
        self._column.addWidget(self.title)
        self._column.addWidget(self.path)
        self._column.addWidget(self.sentence)
        self._column.addSpacing(4)
        self._column.addLayout(buttons)
        self._column.addSpacing(4)
        self._column.addWidget(self.rest)
        self.hide()

    def show_standing(self, standing: Standing | None) -> None:
        state = standing.state if standing is not None else "present"
        gone = state == "missing"
        self.setVisible(state != "present")
        self._picture.setVisible(gone)
        self.path.setVisible(gone)
        self.rest.setVisible(gone)
        self._column.setContentsMargins(*((24, 40, 24, 24) if gone else (24, 16, 24, 16)))
        if standing is None or state == "present":
            return
        self.path.setText(breakable(shortened(standing.root)))
        if gone:
            self.title.setText(self.tr("The drive with the models is not there"))
            self.sentence.setText(self.tr("Plug it in and press Look again, or choose another folder."))
            self.rest.setText(
                self.tr(
                    "Models that lie elsewhere can be opened meanwhile, from the arrow beside the name of the model."
                )
            )
        else:
            self.title.setText(self.tr("Nothing can be added here"))
            self.sentence.setText(breakable(standing.sentence))

    def apply_look(self, look: Look) -> None:
        self._picture.set_color(look.theme.muted)
