"""The text part of the `qwen35` architecture of GGUF files: Qwen3.5, where most layers are recurrent.

Qwen Team, Qwen3.5 (2026); Qiu et al., Gated Attention for Large Language Models (arXiv:2505.06708). Rows of
pictures turn by places of their own.
"""

from __future__ import annotations

from typing import Final

from engine.models.blocks import Attention
from engine.models.config import MAX_LAYERS, Config
from engine.models.decoder import Decoder, Mixer, ReadMixer
from engine.models.delta_net import DeltaNet, read_state
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.qwen3vl import SECTIONS_KEY, picture_axes
from engine.models.traits import Sight, Traits, file_turn

PERIOD: Final = 4
"""Every so many layers attend, unless the file says otherwise (llama.cpp's default)."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen35")
    traits, mixer = hybrid(config, metadata.under("qwen35"), load, context)
    return Decoder(config, load, context, traits, mixer=mixer)


def hybrid(config: Config, keys: Metadata, load: WeightLoader, context: int) -> tuple[Traits, ReadMixer]:
    """What dense models and mixtures of experts have in common."""
    recurrent = _recurrent(keys, config.n_layers)
    state = read_state(keys)
    axes = picture_axes(keys, config) if SECTIONS_KEY in keys else None
    turning, still = Sight(file_turn(config, load, context, "halves", axes)), Sight(None)

    def mixer(config: Config, traits: Traits, load: WeightLoader, index: int) -> Mixer:
        if recurrent[index]:
            return DeltaNet.read(config, state, load, index)
        return Attention.read(config, traits, load, index)

    traits = Traits(
        sight=lambda index: still if recurrent[index] else turning,
        head_norms=True,
        output_gates=True,
        ffn_norm="post_attention_norm",
    )
    return traits, mixer


def _recurrent(keys: Metadata, layers: int) -> list[bool]:
    """For each layer whether it is recurrent."""
    if "attention.recurrent_layers" in keys:
        return keys.flags("attention.recurrent_layers", layers)
    period = keys.integer("full_attention_interval", high=MAX_LAYERS, default=PERIOD)
    return [(index + 1) % period > 0 for index in range(layers)]
