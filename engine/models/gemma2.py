"""The `gemma2` architecture of GGUF files. Gemma Team, Gemma 2 (arXiv:2408.00118).

Defaults are those of llama.cpp. Its converter has added the one that Gemma's norms add to their weights.
"""

from __future__ import annotations

import math
from typing import Final

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.scaling import MAX_CONTEXT
from engine.models.traits import Sight, Traits, file_turn

PERIOD: Final = 2
"""Every so many layers see all positions; the others see a window."""
LARGEST: Final = 46
"""Layers of the model of 27 billion weights, which scales its scores in a way of its own; no key of the file tells."""
MAX_SOFTCAP: Final = 1e6


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "gemma2")
    keys = metadata.under("gemma2")
    turn = file_turn(config, load, context, "halves")
    near = Sight(turn, keys.integer("attention.sliding_window", high=MAX_CONTEXT, default=4096))
    far = Sight(turn)
    traits = Traits(
        sight=lambda index: near if (index + 1) % PERIOD else far,
        post_norms=True,
        activation="gelu_tanh",
        attention_scale=attention_scale(config, LARGEST),
        attention_softcap=keys.number("attn_logit_softcapping", low=1e-3, high=MAX_SOFTCAP, default=50.0),
        embedding_scale=math.sqrt(config.hidden_size),
        logit_softcap=keys.number("final_logit_softcapping", low=1e-3, high=MAX_SOFTCAP, default=30.0),
    )
    return Decoder(config, load, context, traits)


def attention_scale(config: Config, largest: int) -> float:
    """What scores are multiplied with. The model of `largest` layers takes a share of its width for the head's."""
    width = config.hidden_size // config.n_heads if config.n_layers == largest else config.key_dim
    return 1 / math.sqrt(width)
