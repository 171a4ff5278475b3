"""A Hub with real models in it, a library of its own, and a clock that does not keep anybody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from registry.downloads.item import RUNNING, Item, State
from registry.downloads.queue import Downloads
from registry.downloads.waits import Time
from registry.library import Library
from tests.hub_server import HubServer
from tests.registry.downloads.plain import PlainSource

REPOSITORY = "labs/Tiny-GGUF"


class Quick(Time):
    """Every wait is over at once, and the clock says that it took its time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.seconds

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds


def model_bytes(folder: Path, mebibytes: float = 1.0, architecture: str = "llama", seed: int = 0) -> bytes:
    """A sound GGUF file with one tensor of random bytes."""
    path = folder / "made.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    rows = max(1, int(mebibytes * 2**20) // 4096)
    writer.add_tensor("noise", np.random.default_rng(seed).standard_normal((rows, 1024)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.add(
            REPOSITORY,
            {
                "Tiny-Q4.gguf": model_bytes(tmp_path, 3),
                "Tiny-Q8.gguf": model_bytes(tmp_path, 2, seed=1),
                "mmproj-Tiny-F16.gguf": model_bytes(tmp_path, 0.5, "clip", seed=2),
            },
        )
        yield hub


@pytest.fixture
def library(folder: Path) -> Library:
    return Library(folder / "models")


@pytest.fixture
def clock() -> Quick:
    return Quick()


@pytest.fixture
def manager(hub: HubServer, library: Library, clock: Quick) -> Iterator[Callable[..., Downloads]]:
    """Makes `Downloads` over the Hub, which are closed at the end."""
    made: list[Downloads] = []

    def make(**changes: object) -> Downloads:
        settings = {"clock": clock, "margin": 0, "chunk": 1 << 20} | changes
        made.append(Downloads(library, [PlainSource(hub.url)], **settings))
        return made[-1]

    yield make
    hub.release()
    for downloads in made:
        downloads.close()


def ended(downloads: Downloads, id: str, *states: State) -> Item:
    """The item once it rests, or once it is in one of `states`."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        item = next(item for item in downloads.items() if item.id == id)
        if item.state in states or (not states and item.state not in RUNNING):
            return item
        time.sleep(0.002)
    raise AssertionError(f"still {item.state}: {item}")
