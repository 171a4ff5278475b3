"""What fills the window while there is no conversation: getting a model, or an invitation to begin."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QProgressBar, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.choosing import OpenMenu
from app.icons import Picture
from app.look import centred, label, set_property
from app.placement import sentence
from app.requests import Fetching, Loading
from app.translated import translated

WIDTH = 520


class StartPanel(QScrollArea):
    """One arrangement for every state, so that nothing jumps when one turns into the next."""

    load = Signal()
    cancel = Signal()
    example = Signal(str)
    models = Signal()
    """The Models page is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("start")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.title = label(level="display", wrap=True)
        self.sentence = label(tone="muted", wrap=True)
        for line in (self.title, self.sentence):
            line.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(self.tr("Progress"))
        self.figures = label(level="small", tone="muted")
        self.figures.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.figures.setContentsMargins(0, 0, 0, 8)
        self.load_button = QPushButton()
        self.load_button.setProperty("primary", True)
        self.load_button.clicked.connect(self.load)
        self.open_menu = OpenMenu(self)
        self.open_button = QPushButton(self.tr("Open a model from disk"))
        self.open_button.setMenu(self.open_menu)
        self.models_button = QPushButton(self.tr("Choose a model that suits this computer"))
        self.models_button.clicked.connect(self.models)
        self.cancel_button = QPushButton(self.tr("Cancel"))
        self.cancel_button.clicked.connect(self.cancel)
        self.examples = tuple(self._make_example(text) for text in self._example_texts())

        column = QWidget()
        lines = QVBoxLayout(column)
        lines.setContentsMargins(16, 16, 16, 16)
        lines.setSpacing(8)
        lines.addWidget(Picture("millstream", 64), 0, Qt.AlignmentFlag.AlignHCenter)
        lines.addSpacing(12)
        lines.addWidget(self.title)
        lines.addWidget(self.sentence)
        lines.addSpacing(12)
        lines.addWidget(self.bar)
        lines.addWidget(self.figures)
        for button in (self.load_button, self.models_button, self.open_button, self.cancel_button):
            lines.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        for button in self.examples:
            lines.addWidget(button)

        page = QWidget()
        page.setObjectName("page")
        around = QVBoxLayout(page)
        around.setContentsMargins(0, 0, 0, 0)
        around.addStretch(2)
        around.addLayout(centred(column, WIDTH))
        around.addStretch(3)
        self.setWidget(page)
        self.show_no_model("")

    def show_no_model(self, model: str) -> None:
        self._set(
            self.tr("No model yet"),
            self.tr("Millstream needs a model to answer. The starter is small and runs on any machine.")
            if model == "starter"
            else self.tr("Millstream needs a model to answer."),
            load=self.tr("Get the starter model") if model == "starter" else self.tr("Load the model"),
        )

    def show_fetching(self, progress: Fetching) -> None:
        self._set(
            self.tr("Getting the starter model"),
            self.tr("This happens once. Millstream then works without a network."),
            progress=progress,
        )

    def show_loading(self, progress: Loading | None = None) -> None:
        progress = progress or Loading("", 0, 0)
        meanwhile = self.tr("You can write your message meanwhile.")
        self._set(
            self.tr("Loading the model"),
            f"{sentence(progress.plan, translated)}\n{meanwhile}" if progress.plan else meanwhile,
            progress=progress,
        )

    def show_cancelling(self) -> None:
        self.cancel_button.setEnabled(False)
        self.figures.setText(self.tr("Stopping…"))

    def show_failed(self, sentence: str) -> None:
        self._set(self.tr("The model could not be loaded"), sentence, load=self.tr("Try again"), bad=True)

    def show_invitation(self) -> None:
        self._set(
            self.tr("What is on your mind?"),
            self.tr("The model runs on this machine. What you write stays here."),
            examples=True,
        )

    def _set(
        self,
        title: str,
        sentence: str,
        *,
        progress: Fetching | Loading | None = None,
        load: str = "",
        examples: bool = False,
        bad: bool = False,
    ) -> None:
        self.title.setText(title)
        self.sentence.setText(sentence)
        set_property(self.sentence, "tone", "" if bad else "muted")
        self.bar.setVisible(progress is not None)
        self.figures.setVisible(progress is not None)
        self.cancel_button.setVisible(progress is not None)
        for button in (self.load_button, self.models_button, self.open_button):
            button.setVisible(bool(load))
        if load:
            self.load_button.setText(load)
        for button in self.examples:
            button.setVisible(examples)
        if progress is not None:
            self._show_progress(progress)
        else:
            self.cancel_button.setEnabled(True)

    def _show_progress(self, progress: Fetching | Loading) -> None:
        # Thousandths, because bytes pass what a QProgressBar can count.
        known = progress.total > 0
        self.bar.setRange(0, 1000 if known else 0)
        self.bar.setValue(round(1000 * progress.done / progress.total) if known else -1)
        if self.cancel_button.isEnabled():
            percent = f"{100 * progress.done // progress.total} %" if known else ""
            self.figures.setText(" · ".join(part for part in (progress.what, percent) if part))

    def _example_texts(self) -> tuple[str, ...]:
        return (
            self.tr("Why is the sky blue?"),
            self.tr("Give me three ideas for a quiet Sunday."),
            self.tr("Write a thank-you note to a kind neighbour."),
        )

    def _make_example(self, text: str) -> QPushButton:
        button = QPushButton(text)
        button.setProperty("example", True)
        button.clicked.connect(lambda: self.example.emit(text))
        return button
