"""Sentences that several parts of the page say. No Qt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.placement import Translate

if TYPE_CHECKING:
    from registry.downloads.item import Item


def state_of(item: Item, tr: Translate) -> str:
    """What a download does now, in a word or two."""
    return {
        "queued": tr("waits for its turn"),
        "checking": tr("looks at what is there"),
        "downloading": tr("begins"),
        "verifying": tr("checks what came"),
        "waiting": tr("waits, and tries again by itself"),
        "paused": tr("paused"),
        "elsewhere": tr("another program downloads it"),
        "done": tr("in your library"),
        "removed": "",
    }[item.state]


def removing(item: Item, tr: Translate) -> tuple[str, str, str]:
    """What to ask before a download is removed: the question, yes, and no."""
    if item.repair:
        question = tr("Stop the repair of {name}? It goes back into the library as it is, damaged.")
        return question.format(name=item.name), tr("Stop it"), tr("Go on")
    return tr("Remove what came of {name}?").format(name=item.name), tr("Remove"), tr("Keep it")
