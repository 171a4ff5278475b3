"""The `deepseek2` architecture of GGUF files: DeepSeek-V2, V3 and R1.

DeepSeek-AI, DeepSeek-V2 (arXiv:2405.04434), DeepSeek-V3 Technical Report (arXiv:2412.19437). Other models come under
the same name; those with more than this are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.errors import UnsupportedModelError
from engine.models.config import MAX_EXPERTS, Config
from engine.models.decoder import Decoder
from engine.models.latent import Latent
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.traits import Sight, Traits, file_turn, same_sight

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nextn_predict_layers": "layers that predict further tokens",
        "attention.temperature_scale": "a temperature of attention that grows with the position",
    }
)
"""Keys of llama.cpp's that change the answer, and what they ask for; 0 asks for nothing."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "deepseek2", mixture=True, log_multiplier=True)
    keys = metadata.under("deepseek2")
    for key, meaning in REFUSED.items():
        if keys.number(key, low=-1e6, high=1e6, default=0.0):
            raise UnsupportedModelError(
                f"The model has {meaning} ({keys.whole(key)}), which this engine does not run yet."
            )
    latent = Latent.read(keys, config)
    traits = Traits(
        sight=same_sight(Sight(file_turn(config, load, context, "interleaved"))),
        attention_scale=config.scaling.sharpness / math.sqrt(latent.query),
    )
    if not keys.integer("expert_count", low=0, high=MAX_EXPERTS, default=0):
        return Decoder(config, load, context, traits, mixer=latent.mixer)
    mixture = Mixture.read(keys, normalise=False)
    if mixture.router.scores == "softmax":
        # V2 marks a group by its best expert, V3, whose scores are sigmoids, by its two best. No key tells.
        mixture = replace(mixture, router=replace(mixture.router, marks=1))
    return Decoder(config, load, context, traits, mixer=latent.mixer, feed_forward=mixture.feed_forward)
