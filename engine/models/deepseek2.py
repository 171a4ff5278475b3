"""The `deepseek2` architecture of GGUF files: DeepSeek-V2, V3 and R1.

DeepSeek-AI, DeepSeek-V2 (arXiv:2405.04434), DeepSeek-V3 Technical Report (arXiv:2412.19437).
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.models.config import MAX_EXPERTS, Config
from engine.models.decoder import Decoder
from engine.models.latent import Latent
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "deepseek2", mixture=True, log_multiplier=True)
    keys = metadata.under("deepseek2")
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
