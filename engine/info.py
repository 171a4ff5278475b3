"""What a model file says about itself, without its weights being read."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

from engine import models
from engine.decode.cache import cache_bytes
from engine.errors import ModelFileError, SettingsError, naming
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.memory.outline import outline
from engine.models.model import Model
from engine.texts import Texts
from engine.types import DEFAULT_CONTEXT, Budgets, ModelInfo
from engine.vision.eyes import Eyes, find_eyes


def describe(
    path: str | os.PathLike[str],
    budgets: Budgets | None = None,
    *,
    mmproj: str | os.PathLike[str] | None = None,
) -> ModelInfo:
    """The model at `path`, in a few milliseconds, or up to a second where a checkpoint's tokenizer is to be translated.

    Its cache is as `budgets` have it. It sees with the tower of `mmproj`, or with the one that lies beside it and fits.
    Raises ModelFileError, UnsupportedModelError or SettingsError as `Engine.load`.
    """
    budgets = budgets or Budgets()
    index = open_index(Path(path))
    with naming(Path(path).name, *(part.name for part in index.paths)):
        info = model_info(index)
        model = outline(index, positions(budgets, info))
    return with_needs(info, model, find_eyes(index, None if mmproj is None else Path(mmproj)), budgets.kv)


def knows(architecture: str) -> bool:
    """Whether there is a model of this architecture, by the name that GGUF files give it."""
    return architecture in models.ARCHITECTURES


def positions(budgets: Budgets, info: ModelInfo) -> int:
    """Positions to keep. Raises SettingsError where more are asked for than the model was made for."""
    if budgets.context is None:
        return min(info.context_length or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if info.context_length and budgets.context > info.context_length:
        raise SettingsError(
            f"context must be at most {info.context_length}, for which {info.name} was made, not {budgets.context}."
        )
    return budgets.context


def with_needs(info: ModelInfo, model: Model, eyes: Eyes | None, kv: str) -> ModelInfo:
    """The same with what the model needs of memory, its cache being of the kind `kv`, and with its eyes."""
    if eyes is not None:
        info = replace(info, vision=eyes.name, vision_bytes=eyes.nbytes)
    return replace(info, context=model.context_length, kv_bytes=cache_bytes(model.caches, model.context_length, kv))


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
        file_bytes=sum(index.sizes.get(path) or _size(path) for path in index.paths),
        context_length=number("context_length"),
        layers=number("block_count") - number("nextn_predict_layers"),
        hidden_size=number("embedding_length"),
        vocabulary=len(tokens) if isinstance(tokens, Texts | list) else number("vocab_size"),
        encodings=dict(encodings.most_common()),
        weight_bytes=sum(tensor.nbytes for tensor in index.tensors.values()),
    )


def _printable(name: str) -> str:
    """One line of bounded length: it goes into sentences and onto terminals, and anybody can write it into a file."""
    return "".join(char if char.isprintable() else " " for char in name[:200]).strip()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelFileError(f"Cannot read {path}: {error.strerror}.") from error
