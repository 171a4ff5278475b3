"""The `gemma3` architecture of GGUF files. Gemma Team, Gemma 3 (arXiv:2503.19786).

Defaults are those of llama.cpp. Its converter has added the one that Gemma's norms add to their weights.
"""

from __future__ import annotations

import math
from typing import Final

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.gemma2 import MAX_SOFTCAP, attention_scale
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.rotary import Turn, inverse_frequencies
from engine.models.scaling import MAX_CONTEXT
from engine.models.traits import Sight, Traits, file_turn

PERIOD: Final = 6
"""Every so many layers see all positions, turned as the file scales them; the others see a window, never scaled."""
LARGEST: Final = 62
"""Layers of the model of 27 billion weights, which scales its scores in a way of its own; no key of the file tells."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "gemma3")
    keys = metadata.under("gemma3")
    far = near = Sight(file_turn(config, load, context, "halves"))
    window = keys.integer("attention.sliding_window", low=0, high=MAX_CONTEXT, default=0)
    if window:
        theta = keys.number("rope.freq_base_swa", low=1.001, high=1e15, default=10000.0)
        near = Sight(Turn(inverse_frequencies(theta, config.rotary_dim), "halves"), window)
    capped = "final_logit_softcapping" in keys
    traits = Traits(
        mutual_insets=True,
        sight=lambda index: near if (index + 1) % PERIOD else far,
        head_norms=True,
        post_norms=True,
        activation="gelu_tanh",
        attention_scale=attention_scale(config, LARGEST),
        embedding_scale=math.sqrt(config.hidden_size),
        logit_softcap=keys.number("final_logit_softcapping", low=1e-3, high=MAX_SOFTCAP) if capped else None,
    )
    return Decoder(config, load, context, traits)
