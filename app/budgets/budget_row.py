"""One thing that can be chosen: what it is, how much of it, whether by itself, and the slider or the choice."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.budgets.stop_slider import StopSlider
from app.look import Look, label

Write = Callable[[int], str]


class AutoButton(QPushButton):
    """Pressed in while the value is chosen by itself."""

    def __init__(self, name: str) -> None:
        super().__init__(self.tr("auto"))
        self.setProperty("chip", True)
        self.setCheckable(True)
        self.setAccessibleName(self.tr("{name}: choose by itself").format(name=name))
        self.setToolTip(self.tr("Chosen by Millstream, at the mark"))


class SliderRow(QWidget):
    """`chosen` is the value, or None for the recommended one."""

    chosen = Signal(object)

    def __init__(self, name: str, hint: str, write: Write, look: Look) -> None:
        super().__init__()
        self._name, self._hint, self._write = name, hint, write
        self.slider = StopSlider(look)
        self.auto = AutoButton(name)
        self._title = label(name)
        self.figure = label(tone="muted")
        self._title.setToolTip(hint)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self._title, 1)
        head.addWidget(self.figure)
        head.addWidget(self.auto)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(self.slider)
        self.slider.chosen.connect(self.chosen)
        self.slider.back.connect(lambda: self.chosen.emit(None))
        self.auto.clicked.connect(self._on_auto)
        self.show_value(None)

    def set_stops(self, stops: tuple[int, ...], mark: int) -> None:
        self.slider.set_stops(stops, mark)
        self.setEnabled(len(stops) > 1)

    def show_value(self, value: int | None) -> None:
        """None stands for the recommended one."""
        self.auto.setChecked(value is None)
        told = self.slider.mark if value is None else value
        self.slider.show_value(told)
        text = self._write(told)
        self.figure.setText(text)
        said = f"{self._name}, {text}"
        self.slider.setAccessibleName(said if value is not None else self.tr("{said}, by itself").format(said=said))
        self.slider.setAccessibleDescription(self._hint)
        mark = self.tr("The mark is at {value}, which is recommended.").format(value=self._write(self.slider.mark))
        self.slider.setToolTip(f"{self._hint} {mark}")

    def apply_look(self, look: Look) -> None:
        self.slider.apply_look(look)

    def _on_auto(self, checked: bool) -> None:
        self.chosen.emit(None if checked else self.slider.stop)


class CacheRow(QWidget):
    """`chosen` is a kind of cache, or None for the recommended one."""

    chosen = Signal(object)

    def __init__(self, name: str, hint: str, kinds: tuple[tuple[str, str], ...]) -> None:
        """`kinds` with what each means."""
        super().__init__()
        self._title = label(name)
        self._title.setToolTip(hint)
        self.auto = AutoButton(name)
        self.auto.clicked.connect(lambda _: self.chosen.emit(None))
        self._group = QButtonGroup(self)
        self.buttons: dict[str, QPushButton] = {}
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self._title, 1)
        for kind, meaning in kinds:
            button = QPushButton(kind)
            button.setProperty("chip", True)
            button.setCheckable(True)
            button.setToolTip(meaning)
            button.setAccessibleName(f"{name}, {kind}")
            button.setAccessibleDescription(meaning)
            button.clicked.connect(lambda _=False, kind=kind: self.chosen.emit(kind))
            self._group.addButton(button)
            self.buttons[kind] = button
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addSpacing(4)
        row.addWidget(self.auto)

    def show_value(self, kind: str, recommended: str) -> None:
        if kind in self.buttons:
            self.buttons[kind].setChecked(True)
        self.auto.setChecked(kind == recommended)
