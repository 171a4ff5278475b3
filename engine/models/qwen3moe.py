"""The `qwen3moe` architecture of GGUF files: the mixtures of experts of Qwen3.

Yang et al., Qwen3 Technical Report (arXiv:2505.09388).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen3moe", mixture=True)
    mixture = Mixture.read(metadata.under("qwen3moe"))
    traits = Traits(same_sight(Sight(file_turn(config, load, context, "halves"))), head_norms=True)
    return Decoder(config, load, context, traits, feed_forward=mixture.feed_forward)
