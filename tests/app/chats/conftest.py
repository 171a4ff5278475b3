"""A store on disk, of the real SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chats.store import ChatStore


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "chats.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ChatStore]:
    with ChatStore.open(path) as store:
        yield store
