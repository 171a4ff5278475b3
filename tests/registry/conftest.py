"""Models of all kinds, made once, and laid out as other programs do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from registry.library import Library
from tests.engine.formats.checkpoints import write_checkpoint
from tests.registry.stores.models import Made
from tests.tiny import tiny, write_gguf
from tests.tiny_seeing import write_seeing


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("made")
    model = tiny("llama", vocab_size=64)
    write_gguf(root / "plain.gguf", model)
    write_gguf(root / "other.gguf", tiny("qwen3", vocab_size=64))
    (root / "split").mkdir()
    write_gguf(root / "split" / "big.gguf", tiny("llama", vocab_size=96), shard=9)
    (root / "seeing").mkdir()
    write_seeing(root / "seeing")
    (root / "checkpoint").mkdir()
    write_checkpoint(root / "checkpoint", model, shard="60KB")
    return Made(root)


@pytest.fixture
def library(folder: Path) -> Library:
    return Library(folder / "models")


@pytest.fixture
def store(tmp_path: Path, made: Made) -> Path:
    """A folder with a copy of all models in it."""
    return Path(shutil.copytree(made.root, tmp_path / "é store"))
