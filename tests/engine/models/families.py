"""A tiny model and its file of every architecture, whichever module of the tests makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel

from bench.oracle import CLASSES
from tests.engine.models.deepseek import tiny_deepseek, write_deepseek
from tests.engine.models.mixtures import tiny_mixture, write_mixture
from tests.tiny import tiny, write_gguf


@dataclass(frozen=True)
class Family:
    """`make` takes changes to the configuration; `writer` is `write_gguf` or its like."""

    architecture: str
    make: Callable[..., PreTrainedModel]
    writer: Callable[..., None] = write_gguf

    def write(self, path: Path, model: PreTrainedModel, encoding: str = "F32", *, shard: int = 0) -> None:
        """The file, named by its shards where there are several; the model then has the rounded weights."""
        self.writer(path, model=model, encoding=encoding, shard=shard)


def _mixture(architecture: str) -> Family:
    return Family(architecture, partial(tiny_mixture, architecture), partial(write_mixture, architecture=architecture))


EXPERTS = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 32}

FAMILIES: dict[str, Family] = {
    **{name: Family(name, partial(tiny, name)) for name in CLASSES},
    "gemma4 experts": Family("gemma4", partial(tiny, "gemma4", **EXPERTS)),
    "gpt-oss": _mixture("gpt-oss"),
    "mixtral": _mixture("llama"),
    "qwen3moe": _mixture("qwen3moe"),
    "qwen3vlmoe": _mixture("qwen3vlmoe"),
    "deepseek v2": Family("deepseek2", partial(tiny_deepseek, 2), write_deepseek),
    "deepseek v3": Family("deepseek2", partial(tiny_deepseek, 3), write_deepseek),
}
"""By the name of an architecture, or of a family where several share one."""
