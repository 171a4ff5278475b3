"""A call of a tool that a model asks for."""

from __future__ import annotations

import json

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout

from app.elided_label import ElidedLabel
from app.icons import Picture
from app.look import Look, label
from app.text_pane import TextPane
from engine.types import ToolCall

LONGEST = 4000
"""Characters of the arguments, which may be a whole file, that are shown."""


class CallView(QFrame):
    """The tool's name, and below it what the tool is told: one line for each argument."""

    def __init__(self, call: ToolCall, look: Look) -> None:
        super().__init__()
        self.setObjectName("call")
        self._sign = Picture("call", 16, look.theme.muted)
        name = ElidedLabel()
        name.setText(call.name)
        name.setProperty("level", "author")
        asks = label(self.tr("Asks for the tool"), level="small", tone="muted")
        asks.setToolTip(self.tr("Tools are not run in this window"))
        self.body = TextPane(look)
        self.body.setProperty("mono", True)
        self.body.set_text(_readable(call.arguments))
        self.body.setAccessibleName(self.tr("The model asks for the tool {name}").format(name=call.name))
        self.body.setVisible(bool(self.body.toPlainText()))

        header = QHBoxLayout()
        header.setSpacing(8)
        header.addWidget(self._sign)
        header.addWidget(asks)
        header.addWidget(name, 1)
        lines = QVBoxLayout(self)
        lines.setContentsMargins(12, 8, 12, 8)
        lines.setSpacing(4)
        lines.addLayout(header)
        lines.addWidget(self.body)

    def apply_look(self, look: Look) -> None:
        self._sign.set_color(look.theme.muted)
        self.body.apply_look(look)


def _readable(arguments: str) -> str:
    """`name: value` by lines, text without its quotes; what is no object stays as it is."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        arguments = "\n".join(f"{name}:{_value(value)}" for name, value in given.items())
    return arguments if len(arguments) <= LONGEST else f"{arguments[:LONGEST]}…"


def _value(value: object) -> str:
    """Text of several lines begins on a line of its own."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"\n{text}" if "\n" in text else f" {text}"
