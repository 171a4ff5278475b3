"""What the one button does for a quantisation. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from app.models_page.fitness import UNKNOWN, Fitness

if TYPE_CHECKING:
    from registry.downloads.item import Item
    from registry.downloads.record import Wanted
    from registry.items import Offer
    from registry.library import LibraryModel

Act = Literal["download", "pause", "resume", "load", "chat", "wait", "none"]
"""`chat`: it is loaded already. `wait`: another program downloads it. `none`: it cannot be downloaded."""

RUNNING = ("queued", "checking", "downloading", "verifying", "waiting")
PARTIAL = (*RUNNING, "paused")


@dataclass(frozen=True)
class Choice:
    """One offer and all that is known of it here: its download, what the library has of it, and how it would run.

    `wanted` is None, and `problem` a sentence, for one that cannot be downloaded.
    """

    offer: Offer
    wanted: Wanted | None
    problem: str
    fitness: Fitness = UNKNOWN
    item: Item | None = None
    kept: LibraryModel | None = None
    loaded: bool = False
    recommended: bool = False

    @property
    def act(self) -> Act:
        if self.kept is not None:
            return "chat" if self.loaded else "load"
        if self.item is not None and self.item.state in RUNNING:
            return "pause"
        if self.item is not None and self.item.state == "paused":
            return "resume" if self.item.wanted is not None else "none"
        if self.item is not None and self.item.state == "elsewhere":
            return "wait"
        return "download" if self.wanted is not None else "none"

    @property
    def partial(self) -> bool:
        """Whether there is something of it to remove that is not whole."""
        return self.kept is None and self.item is not None and self.item.state in PARTIAL

    @property
    def name(self) -> str:
        """By which the library lists it."""
        return "/".join(self.wanted.steps()) if self.wanted is not None else ""


def choice_of(offer: Offer, licence: str) -> Choice:
    from engine.errors import DownloadError
    from registry.downloads.offered import wanted_of

    if offer.problem:
        return Choice(offer, None, offer.problem, Fitness("cannot", offer.problem))
    try:
        wanted = wanted_of(offer, licence)
        wanted.check()
    except DownloadError as error:
        return Choice(offer, None, str(error), Fitness("cannot", str(error)))
    return Choice(offer, wanted, "")
