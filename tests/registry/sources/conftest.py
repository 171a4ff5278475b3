"""A Hub on loopback with one small repository, asked by the real client."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pytest
from huggingface_hub import close_session

from engine.cancel import Cancel
from registry.sources.hub import Hub
from registry.sources.source import RemoteFile
from tests.hub_server import HubServer

GGUF = bytes(range(256)) * 20
CONFIG = b'{"model_type": "llama"}'
ID = "org/tiny"
FILE = f"{ID}/tiny-Q4_K_M.gguf"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        server.use(monkeypatch)
        close_session()  # its connections and its proxies are those of the test before
        server.add(
            ID,
            {"tiny-Q4_K_M.gguf": GGUF, "config.json": CONFIG, "a folder/é 山.gguf": GGUF[:999]},
            downloads=7,
            likes=3,
        )
        yield server
        close_session()


@pytest.fixture
def source(hub: HubServer) -> Hub:
    return Hub.from_environment()


def listed(source: Hub, path: str = "tiny-Q4_K_M.gguf", id: str = ID) -> RemoteFile:
    return next(file for file in source.repository(id, Cancel()).files if file.path == path)


def read(source: Hub, file: RemoteFile, first: int = 0, last: int | None = None, cancel: Cancel | None = None) -> bytes:
    with source.open(file, first, cancel or Cancel(), last) as opened:
        assert opened.first in (0, first) and opened.total == file.nbytes
        return b"".join(opened.chunks)


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def after(seconds: float, cancel: Cancel) -> threading.Timer:
    timer = threading.Timer(seconds, cancel.set)
    timer.start()
    return timer
