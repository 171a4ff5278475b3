"""Models that are elsewhere, for tests: files of a folder in a repository of a Hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import close_session

from engine.cancel import Cancel
from engine.formats.index import TensorIndex
from engine.memory.figures import Drive, Speed, Speeds
from engine.planning import Machine
from engine.types import Budgets, ModelInfo
from registry.items import Offer, offers
from registry.probe.tree import Gpu
from registry.sources.hub import Hub
from tests.hub_server import HubServer

ID = "org/tiny"
PLENTY = 64 << 30
DRIVE = Drive(bandwidth=1e9, latency=1e-4, threads=2, block_bytes=1 << 16)
SPEEDS = Speeds({"Q8_0": Speed(passed=2e10, multiply_adds=1e11)}, walk=1e-6)


@contextmanager
def hub_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        server.use(monkeypatch)
        close_session()  # its connections are those of the test before
        yield server
        close_session()


def publish(hub: HubServer, folder: Path) -> tuple[Offer, ...]:
    """All files of a folder, as `ID`: → what it offers."""
    hub.add(
        ID, {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    )
    return offers(Hub.from_environment().repository(ID, Cancel()))


def fetched(hub: HubServer, path: str) -> int:
    """Bytes that were sent of a file."""
    return sum(end - first for first, end in hub.fetched(f"{ID}/{path}"))


def machine(free: int = PLENTY, *, drive: Drive | None = DRIVE) -> Machine:
    return Machine(PLENTY, free, 2, 50_000_000, 0, lambda: drive, lambda encodings: SPEEDS)


class There:
    """A machine whose figures do not change from one moment to the next, in place of `Here`."""

    def __init__(self, free: int = PLENTY) -> None:
        self.cancel = Cancel()
        self.gpus: tuple[Gpu, ...] = ()
        self._machine = machine(free)

    def machine(self, index: TensorIndex, info: ModelInfo, budgets: Budgets) -> Machine:
        return self._machine
