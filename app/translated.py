"""The words that the window shares with the terminal, in the person's language."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

CONTEXT = "placement"


def translated(text: str) -> str:
    """As the translations that are installed have it; the text itself where they have none."""
    return QCoreApplication.translate(CONTEXT, text)
