"""What a model file says about itself, without its weights being read."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

from engine import models
from engine.errors import ModelFileError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.types import ModelInfo


def describe(path: str | os.PathLike[str]) -> ModelInfo:
    """The model at `path`, in a few milliseconds, or up to a second where a checkpoint's tokenizer is to be translated.

    Raises ModelFileError or UnsupportedModelError as `Engine.load`.
    """
    return model_info(open_index(Path(path)))


def model_info(index: TensorIndex) -> ModelInfo:
    """The same, of an index that is already open. Raises UnsupportedModelError for an unknown architecture."""
    metadata = index.metadata
    models.find(metadata)
    architecture = str(metadata.get("general.architecture", ""))

    def number(key: str) -> int:
        value = metadata.get(f"{architecture}.{key}", 0)
        return value if isinstance(value, int) and value > 0 else 0

    tokens = metadata.get("tokenizer.ggml.tokens")
    encodings: Counter[str] = Counter()
    for tensor in index.tensors.values():
        encodings[tensor.encoding] += tensor.nbytes
    return ModelInfo(
        path=str(index.paths[0]),
        name=_printable(str(metadata.get("general.name") or index.paths[0].stem)),
        architecture=architecture,
        parameters=sum(math.prod(tensor.shape) for tensor in index.tensors.values()),
        file_bytes=sum(_size(path) for path in index.paths),
        context_length=number("context_length"),
        layers=number("block_count") - number("nextn_predict_layers"),
        hidden_size=number("embedding_length"),
        vocabulary=len(tokens) if isinstance(tokens, list) else number("vocab_size"),
        encodings=dict(encodings.most_common()),
    )


def _printable(name: str) -> str:
    """One line of bounded length: it goes into sentences and onto terminals, and anybody can write it into a file."""
    return "".join(char if char.isprintable() else " " for char in name[:200]).strip()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"Cannot read {path}: {error.strerror}.") from error
