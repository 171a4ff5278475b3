"""The `llama` architecture of GGUF files: Llama 2 and 3, SmolLM2, Mistral, Mixtral and others of their shape.

Touvron et al., LLaMA (arXiv:2302.13971); Jiang et al., Mixtral of Experts (arXiv:2401.04088).
"""

from __future__ import annotations

from engine.models.config import MAX_EXPERTS, Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "llama", mixture=True)
    keys = metadata.under("llama")
    # llama.cpp's converter has reordered the rows of q and k, so that neighbours turn together.
    sight = Sight(file_turn(config, load, context, "interleaved"))
    traits = Traits(same_sight(sight))
    if not keys.integer("expert_count", low=0, high=MAX_EXPERTS, default=0):
        return Decoder(config, load, context, traits)
    mixture = Mixture.read(keys, width=config.intermediate_size)
    return Decoder(config, load, context, traits, feed_forward=mixture.feed_forward)
