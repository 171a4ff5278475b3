"""Sentences that several parts of the page say. No Qt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.placement import Translate

if TYPE_CHECKING:
    from registry.downloads.item import Item


def asks_for_token(sentence: str) -> bool:
    """Whether an access token would help, by a sentence of `registry.sources.hub_errors`. The record of a download
    keeps its sentence alone."""
    return "access token" in sentence


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
