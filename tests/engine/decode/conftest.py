from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from engine import models
from engine.decode.cache import KVCache
from engine.decode.forward import Forward
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.text import Tokenizer
from tests.tiny_chat import write_tiny_chat


@pytest.fixture(scope="package")
def index(tmp_path_factory: pytest.TempPathFactory) -> TensorIndex:
    return open_index(write_tiny_chat(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.fixture(scope="package")
def tokenizer(index: TensorIndex) -> Tokenizer:
    return Tokenizer.from_metadata(index.metadata)


@pytest.fixture(scope="package")
def make_forward(index: TensorIndex) -> Callable[..., Forward]:
    """Makes the tiny model with an empty cache of its own."""

    def make(ops: Ops | None = None, *, capacity: int = 64, kv: str = "f16") -> Forward:
        ops, meter = ops or PlainOps(), Meter()
        with closing(WeightStore(index, ops, meter)) as store:
            model = models.build(index.metadata, store, context=capacity)
        return Forward(model, ops, KVCache(ops, model.caches, capacity, kv, meter))

    return make
