"""The `qwen3vl` architecture of GGUF files: the text part of Qwen3-VL, Qwen3 with places for pictures.

Qwen3-VL Technical Report (arXiv:2511.21631).
"""

from __future__ import annotations

from typing import Final

from engine.models.config import MAX_HEAD_DIM, Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.rotary import Axes
from engine.models.traits import Sight, Traits, file_turn, same_sight
from engine.vision.positions import rotary_axes

SECTIONS_KEY: Final = "rope.dimension_sections"
SECTIONS: Final = 4
"""Pairs that turn by time, height and width; the fourth number is for what no model of this family has."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen3vl")
    return Decoder(config, load, context, seeing(config, metadata.under("qwen3vl"), load, context))


def seeing(config: Config, keys: Metadata, load: WeightLoader, context: int) -> Traits:
    """What dense models and mixtures of experts have in common."""
    sight = Sight(file_turn(config, load, context, "halves", picture_axes(keys, config)))
    levels = keys.integer("n_deepstack_layers", low=0, high=config.n_layers, default=0)
    return Traits(same_sight(sight), head_norms=True, inset_levels=levels)


def picture_axes(keys: Metadata, config: Config) -> Axes:
    """The axes of a family whose files give the sections of interleaved positions."""
    sections = keys.integers(SECTIONS_KEY, SECTIONS, low=0, high=MAX_HEAD_DIM)
    return rotary_axes(config.rotary_dim // 2, sections)
