"""A download in a terminal: one item is brought to its end, with a line that tells how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from app.console import Progress, note, plain
from engine import DownloadError, human_bytes
from engine.units import plural

if TYPE_CHECKING:
    from registry.downloads.item import Item
    from registry.downloads.queue import Downloads
    from registry.library import Library
    from registry.sources.source import Source

OFTEN = 0.5
"""Seconds after which the line is told anew, whether or not something came."""


def bring(
    begin: Callable[[Downloads], Item], library: Library, sources: Iterable[Source], rate: int | None = None
) -> Item:
    """Download what `begin` adds to the queue: → the item, which is done. `rate` is in bytes a second.

    Ctrl+C pauses it, and is raised again. Raises DownloadError with the sentence of an item that cannot go on, or that
    another Millstream has; StorageError where the library cannot be written to.
    """
    from registry.downloads.item import RUNNING
    from registry.downloads.queue import Downloads

    library.require_writable()
    changed, line = threading.Event(), Progress()
    with Downloads(library, sources, rate=rate, on_change=lambda _: changed.set()) as downloads:
        item = begin(downloads)
        said = ""
        try:
            while item.state in RUNNING:
                if item.state == "waiting" and item.sentence != said:
                    said = item.sentence
                    line.clear()
                    note(plain(said))
                line.say(told(item))
                changed.wait(OFTEN)
                changed.clear()
                item = next(other for other in downloads.items() if other.id == item.id)
        except KeyboardInterrupt:
            downloads.pause(item.id)
            raise
        finally:
            line.clear()
    if item.state != "done":
        if item.needs_token:
            from registry.sources.source import AccessError

            raise AccessError(item.sentence)
        raise DownloadError(item.sentence or f"{item.name} was paused by another part of the program: try again.")
    return item


def told(item: Item) -> str:
    """How far it is, what matters most first: "Tiny-Q4 … 45 %, 1.2 GB of 2.7 GB, 5.2 MB/s, 5 minutes left"."""
    if item.state == "waiting":
        return f"{item.name} … {share(item)} %, tries again in {round(item.wait)} s"
    if item.state in ("checking", "verifying", "queued"):
        what = {"checking": "looking at what is there", "verifying": "verifying", "queued": "waiting"}[item.state]
        return f"{item.name} … {what}"
    parts = [f"{share(item)} %", f"{human_bytes(item.done)} of {human_bytes(item.nbytes)}"]
    if item.speed >= 1:
        parts.append(f"{human_bytes(round(item.speed))}/s")
    if item.seconds_left is not None:
        parts.append(f"{duration(item.seconds_left)} left")
    if len(item.files) > 1:
        whole = sum(file.done == file.nbytes for file in item.files)
        parts.append(f"{whole} of {len(item.files)} files are there")
    return f"{item.name} … {', '.join(parts)}"


def share(item: Item) -> int:
    """How much of it is there, in whole percent."""
    return 100 * item.done // item.nbytes if item.nbytes else 0


def duration(seconds: float) -> str:
    """About how long: "40 seconds", "3 minutes", "2 hours"."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{round(seconds / length)} {unit}s"
    whole = max(1, round(seconds))
    return f"{whole} {plural(whole, 'second')}"
