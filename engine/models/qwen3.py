"""The `qwen3` architecture of GGUF files: the dense models of Qwen3, whose queries and keys are normed head by head.

Yang et al., Qwen3 Technical Report (arXiv:2505.09388).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen3")
    sight = Sight(file_turn(config, load, context, "halves"))
    return Decoder(config, load, context, Traits(same_sight(sight), head_norms=True))
