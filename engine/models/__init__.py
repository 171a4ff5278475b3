"""The architectures that this engine knows, by the name that a file's metadata gives."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from engine.errors import SettingsError, UnsupportedModelError
from engine.models import (
    bitnet,
    deepseek2,
    gemma2,
    gemma3,
    gemma4,
    gpt_oss,
    llama,
    phi3,
    qwen2,
    qwen3,
    qwen3moe,
    qwen3vl,
    qwen3vlmoe,
    qwen35,
    qwen35moe,
    smollm3,
)
from engine.models.metadata import Metadata
from engine.models.model import Model, WeightLoader

Architecture = Callable[[Metadata, WeightLoader, int], Model]
"""Makes a model from its metadata, its weights and the positions to be kept."""

ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {
        "bitnet": bitnet.build,
        "bitnet-b1.58": bitnet.build_b158,
        "deepseek2": deepseek2.build,
        "gemma2": gemma2.build,
        "gemma3": gemma3.build,
        "gemma4": gemma4.build,
        "gpt-oss": gpt_oss.build,
        "llama": llama.build,
        "phi3": phi3.build,
        "qwen2": qwen2.build,
        "qwen3": qwen3.build,
        "qwen3moe": qwen3moe.build,
        "qwen35": qwen35.build,
        "qwen35moe": qwen35moe.build,
        "qwen3vl": qwen3vl.build,
        "qwen3vlmoe": qwen3vlmoe.build,
        "smollm3": smollm3.build,
    }
)


def build(metadata: Mapping[str, object], load: WeightLoader, *, context: int) -> Model:
    """The model that a file describes, its weights taken from `load`.

    `context` is the number of positions wanted; the model's `context_length` is that, or less where the file
    claims less. Raises UnsupportedModelError for an architecture or a variant that is not known, ModelFileError for
    metadata that cannot be true or a tensor that does not fit it, SettingsError for a context below one.
    """
    if context < 1:
        raise SettingsError(f"A context of {context} positions is too small; ask for at least 1.")
    return find(metadata)(Metadata(metadata), load, context)


def find(metadata: Mapping[str, object]) -> Architecture:
    """The architecture that a file names. Raises UnsupportedModelError for an unknown one, ModelFileError for none."""
    name = Metadata(metadata).text("general.architecture")
    if name == "clip":
        raise UnsupportedModelError("This is the vision tower of a model: choose the model that it was published with.")
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"The model's architecture {reprlib.repr(name)} is not one of those known: {known}."
        )
    return ARCHITECTURES[name]
