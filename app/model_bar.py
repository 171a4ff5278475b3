"""The bar above the conversation: which model answers, how it runs, how fast it is and what it takes."""

from __future__ import annotations

import psutil
from PySide6.QtCore import QLocale, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QToolButton

from app.choosing import OpenMenu
from app.elided_label import ElidedLabel
from app.icons import Picture, icon
from app.look import Look, label, set_property
from app.naming import display_name, main_encoding
from app.placement import sentence
from app.placement import speed as predicted
from app.placement_view import PlacementView
from app.requests import Loaded
from app.throttle import Every, Rate
from app.translated import translated
from engine.types import Plan
from engine.units import human_bytes

GAUGE_INTERVAL_S = 1.0
NARROW = 560
NAME = 160
"""Pixels that the gauges leave to the name in a narrow window."""
TIGHT = 0.05
"""Less than this share of the machine's memory left free is tight."""


class ModelBar(QFrame):
    """The gauges move at most once a second, and only when something arrives: there is no timer."""

    new_chat = Signal()
    library = Signal()
    """The Models page is asked for, or the way back from it."""
    downloads = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._process = psutil.Process()
        self._gauge = Every(GAUGE_INTERVAL_S)
        self._rate = Rate()
        self.setObjectName("modelBar")
        self.setFixedHeight(52)

        self.new_chat_button = QToolButton()
        self.new_chat_button.setIconSize(QSize(20, 20))
        self.new_chat_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.new_chat_button.setText(self.tr("New chat"))
        self.new_chat_button.setToolTip(self.tr("New chat (Ctrl+N)"))
        self.new_chat_button.setAccessibleName(self.tr("New chat"))
        self.new_chat_button.clicked.connect(self.new_chat)

        self.library_button = QToolButton()
        self.library_button.setObjectName("modelsButton")
        self.library_button.setIconSize(QSize(20, 20))
        self.library_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.library_button.setText(self.tr("Models"))
        self.library_button.setToolTip(self.tr("Models (Ctrl+Shift+M)"))
        self.library_button.setAccessibleName(self.tr("Models"))
        self.library_button.clicked.connect(self.library)
        self.downloads_button = QToolButton()
        self.downloads_button.setProperty("quiet", True)
        self.downloads_button.setAccessibleName(self.tr("Downloads"))
        self.downloads_button.setIconSize(QSize(16, 16))
        self.downloads_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.downloads_button.clicked.connect(self.downloads)
        self.downloads_button.hide()

        self._name = ElidedLabel()
        self.open_menu = OpenMenu(self)
        self.models_button = QToolButton()
        self.models_button.setIconSize(QSize(16, 16))
        self.models_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.models_button.setMenu(self.open_menu)
        self.models_button.setToolTip(self.tr("Open another model"))
        self.models_button.setAccessibleName(self.tr("Open another model"))
        self._eye = Picture("eye", 16)
        self._eye.setAccessibleName(self.tr("This model sees pictures"))
        self.fit_button = QToolButton()
        self.fit_button.setProperty("quiet", True)
        self.fit_button.clicked.connect(self.show_placement)
        self._fits: tuple[str, ...] = ("",)
        """How the model runs, from the most that is said of it to the least."""
        self.placement = PlacementView(self)
        self.open_menu.addSeparator()
        self.placement_action = self.open_menu.addAction(self.tr("How this model runs"), self.show_placement)
        self._speed = label(level="small", tone="muted")
        self._memory = label(level="small", tone="muted")

        row = QHBoxLayout(self)
        row.setContentsMargins(12, 0, 16, 0)
        row.setSpacing(16)
        buttons = QHBoxLayout()
        buttons.setSpacing(4)
        for button in (self.new_chat_button, self.library_button, self.downloads_button):
            buttons.addWidget(button)
        row.addLayout(buttons)
        named = QHBoxLayout()
        named.setSpacing(8)
        named.addWidget(self._name)
        named.addWidget(self._eye)
        named.addWidget(self.models_button)
        row.addLayout(named)
        row.addWidget(self.fit_button)
        row.addStretch(1)
        row.addWidget(self._speed)
        row.addWidget(self._memory)
        self.apply_look(look)
        self.show_no_model()

    def show_no_model(self, text: str = "") -> None:
        self._name.setText(text or self.tr("No model"))
        self._name.setToolTip("")
        self._eye.hide()
        set_property(self._name, "tone", "muted")
        self._set_fit(("",))
        self.placement.close()
        self.placement_action.setEnabled(False)
        for gauge in (self._speed, self._memory):
            gauge.clear()
        self._make_room()

    def show_model(self, loaded: Loaded) -> None:
        info = loaded.info
        self._name.setText(" · ".join(part for part in (display_name(info), main_encoding(info)) if part))
        self._name.setToolTip(f"{info.name}\n{info.path}")
        self._eye.setVisible(bool(info.vision))
        self._eye.setToolTip(
            self.tr("This model sees pictures. The first one takes {size} more memory, for the vision tower.").format(
                size=human_bytes(info.vision_bytes)
            )
        )
        set_property(self._name, "tone", "")
        tight = loaded.free_bytes < TIGHT * loaded.machine_bytes
        self._set_fit(self._how_it_runs(loaded.plan, tight))
        set_property(self.fit_button, "tone", "warn" if tight else "")
        self.fit_button.setToolTip(sentence(loaded.plan, translated))
        self.placement.set_plan(loaded.plan)
        self.placement_action.setEnabled(True)
        self._show_memory()

    def show_placement(self) -> None:
        """Tell where the weights are."""
        self.placement.open_under(self.models_button if self.fit_button.isHidden() else self.fit_button)

    def show_downloads(self, number: int, percent: int) -> None:
        """How many models are on their way, and how far they are together; nothing is shown of none."""
        text = f"{percent} %"
        if bool(number) == self.downloads_button.isHidden() or text != self.downloads_button.text():
            self.downloads_button.setVisible(bool(number))
            self.downloads_button.setText(text)
            told = self.tr("1 download, {percent} % of it is here") if number == 1 else ""
            told = told or self.tr("{n} downloads, {percent} % of them are here")
            self.downloads_button.setAccessibleName(told.format(n=number, percent=percent))
            self.downloads_button.setToolTip(told.format(n=number, percent=percent))
            self._make_room()

    def show_place(self, models: bool) -> None:
        """Whether the Models page is in front."""
        set_property(self.library_button, "here", models)

    @property
    def sees(self) -> bool:
        """Whether the model is shown as one that sees pictures."""
        return not self._eye.isHidden()

    def begin_reply(self) -> None:
        self._rate = Rate()

    def piece_arrived(self) -> None:
        """A piece of a reply came: about a token."""
        self._rate.arrived()
        if self.isVisible() and self._gauge.due():
            self._show_speed(self._rate.per_second)
            self._show_memory()

    def end_reply(self, tok_s: float) -> None:
        """`tok_s` is what the engine itself measured; 0.0 where there was nothing to measure."""
        self._show_speed(tok_s or None)
        self._show_memory()

    def apply_look(self, look: Look) -> None:
        self.new_chat_button.setIcon(icon("new-chat", 20, look.theme.text))
        self.library_button.setIcon(icon("models", 20, look.theme.text))
        self.downloads_button.setIcon(icon("download", 16, look.theme.muted))
        self.models_button.setIcon(icon("fold", 16, look.theme.muted))
        self._eye.set_color(look.theme.muted)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW
        style = Qt.ToolButtonStyle.ToolButtonIconOnly if narrow else Qt.ToolButtonStyle.ToolButtonTextBesideIcon
        for button in (self.new_chat_button, self.library_button):
            button.setToolButtonStyle(style)
        self._make_room()

    def _how_it_runs(self, plan: Plan, tight: bool) -> tuple[str, ...]:
        disk = self.tr("streams from disk")
        if tight:
            least = self.tr("memory is tight")
            return (f"{disk}, {least}", least) if plan.streams else (least,)
        if not plan.streams:
            return (self.tr("in memory"),)
        return (*([f"{disk}, {predicted(plan.tok_s, translated)}"] if plan.tok_s else []), disk, self.tr("from disk"))

    def _set_fit(self, forms: tuple[str, ...]) -> None:
        self._fits = forms
        self.fit_button.setText(forms[0])
        self.fit_button.setAccessibleName(self.tr("How this model runs: {how}").format(how=forms[0]))

    def _make_room(self) -> None:
        """A gauge is shown whole or not at all: first goes the fit, of which less is said before, then the memory, last
        the speed."""
        row = self.layout()
        margins = row.contentsMargins()
        fixed = self.new_chat_button.sizeHint().width() + self._name.minimumSizeHint().width()
        for button in (self.library_button, self.downloads_button):
            fixed += 0 if button.isHidden() else 4 + button.sizeHint().width()
        fixed += 8 + self.models_button.sizeHint().width() + (0 if self._eye.isHidden() else 8 + self._eye.width())
        room = self.width() - margins.left() - margins.right() - fixed - row.spacing()
        if self.width() < NARROW:
            # The name is worth more than the gauges after the first.
            room -= max(0, min(self._name.sizeHint().width(), NAME) - self._name.minimumSizeHint().width())
        for gauge in (self._speed, self._memory):
            wanted = row.spacing() + gauge.sizeHint().width()
            gauge.setVisible(wanted <= room)
            room = room - wanted if wanted <= room else 0
        # All but the least that can be said of the fit gives way to the rest of the name.
        rest = max(0, self._name.sizeHint().width() - self._name.minimumSizeHint().width())
        for form in self._fits:
            self.fit_button.setText(form)
            spared = 0 if form == self._fits[-1] or self.width() < NARROW else rest
            shown = bool(form) and row.spacing() + self.fit_button.sizeHint().width() <= room - spared
            if shown:
                break
        self.fit_button.setVisible(shown)
        row.activate()  # at once: a gauge that was empty has no width yet

    def _show_speed(self, tok_s: float | None) -> None:
        self._speed.setText("" if tok_s is None else speed(tok_s))
        self._speed.setToolTip(self.tr("Tokens a second, in the newest reply"))
        self._make_room()

    def _show_memory(self) -> None:
        self._memory.setText(human_bytes(self._process.memory_info().rss))
        self._memory.setToolTip(self.tr("Memory that Millstream takes"))
        self._make_room()


def speed(tok_s: float) -> str:
    return f"{QLocale().toString(tok_s, 'f', 1)} tok/s"
