"""Fixtures of the tests of streaming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.memory.arena import Arena
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.stream import Stream
from tests.engine.memory.streaming import (
    HangingReads,
    hanging_reads,
)
from tests.engine.memory.walks import BLOCK, MakeStream


@pytest.fixture
def make_stream() -> Iterator[MakeStream]:
    """Makes streams, and closes their pools and files."""
    closed: list[ReadPool | ModelFiles] = []

    def make(arena: int, threads: int = 2, **options: object) -> Stream:
        files, pool = ModelFiles(keep_cached=False), ReadPool(threads)
        closed.extend((pool, files))
        return Stream(files, pool, Arena(arena), **{"block_bytes": BLOCK, **options})

    yield make
    for each in closed:
        each.close()


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingReads]:
    with hanging_reads(tmp_path, monkeypatch) as hanging:
        yield hanging
