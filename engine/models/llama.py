"""The `llama` architecture of GGUF files: Llama 2 and 3, SmolLM2, Mistral and others of their shape.

Touvron et al., LLaMA (arXiv:2302.13971).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "llama")
    # llama.cpp's converter has reordered the rows of q and k, so that neighbours turn together.
    sight = Sight(file_turn(config, load, context, "interleaved"))
    return Decoder(config, load, context, Traits(same_sight(sight)))
