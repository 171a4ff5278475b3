"""The `qwen2` architecture of GGUF files: Qwen2 and Qwen2.5, whose queries, keys and values have biases.

Yang et al., Qwen2 Technical Report (arXiv:2407.10671).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen2")
    sight = Sight(file_turn(config, load, context, "halves"))
    return Decoder(config, load, context, Traits(same_sight(sight), biased=True))
