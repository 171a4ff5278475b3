from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.accuracy import PROSE
from engine import models
from engine.decode.cache import KVCache
from engine.decode.forward import Forward
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model
from engine.text import Tokenizer
from tests.tiny_chat import write_tiny_chat

STARTER_CONTEXT = 1056


@pytest.fixture(scope="package")
def index(tmp_path_factory: pytest.TempPathFactory) -> TensorIndex:
    return open_index(write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.fixture(scope="package")
def tokenizer(index: TensorIndex) -> Tokenizer:
    return Tokenizer.from_metadata(index.metadata)


@pytest.fixture(scope="package")
def make_forward(index: TensorIndex) -> Callable[..., Forward]:
    """Makes the tiny model, or that of another file, with an empty cache of its own."""

    def make(ops: Ops | None = None, *, capacity: int = 64, kv: str = "f16", file: TensorIndex = index) -> Forward:
        ops, meter = ops or PlainOps(), Meter()
        with closing(WeightStore(file, ops, meter)) as store:
            model = models.build(file.metadata, store, context=capacity)
        return Forward(model, ops, KVCache(ops, model.caches, capacity, kv, meter))

    return make


@pytest.fixture(scope="package")
def starter_on(starter: Path) -> Iterator[Callable[..., Forward]]:
    """The starter on a native library with so many threads, and an empty cache."""
    file = open_index(starter)
    loaded: dict[tuple[str, int], tuple[NativeOps, Model]] = {}

    def make(isa: str, threads: int, kv: str) -> Forward:
        if (isa, threads) not in loaded:
            ops = NativeOps(threads, isa)
            with closing(WeightStore(file, ops, Meter())) as store:
                loaded[isa, threads] = ops, models.build(file.metadata, store, context=STARTER_CONTEXT)
        ops, model = loaded[isa, threads]
        return Forward(model, ops, KVCache(ops, model.caches, STARTER_CONTEXT, kv, Meter()))

    yield make
    for ops, _ in loaded.values():
        ops.close()


@pytest.fixture(scope="package")
def prose(starter: Path) -> list[int]:
    """Enough of the starter's tokens to fill its context in these tests."""
    tokens = Tokenizer.from_metadata(open_index(starter).metadata).encode(
        PROSE.read_text("utf-8"), parse_special=False, add_bos=False
    )
    return (tokens * 2)[:STARTER_CONTEXT]
