"""A program that downloads until it is killed."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection
from pathlib import Path

from registry.downloads.queue import Downloads
from registry.library import Library
from tests.registry.downloads.plain import PlainSource


def download_forever(root: str, url: str, chunk: int, states: Connection) -> None:
    """Go on with what is in the library `root`, and send each state."""
    with Downloads(
        Library(Path(root)),
        [PlainSource(url)],
        go_on=True,
        chunk=chunk,
        margin=0,
        on_change=lambda item: states.send(item.state),
    ):
        threading.Event().wait()
