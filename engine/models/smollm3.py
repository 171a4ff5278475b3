"""The `smollm3` architecture of GGUF files: SmolLM3, where every fourth layer has no rotary positions.

Hugging Face, SmolLM3 (2025); Yang et al., Rope to Nope and Back Again (arXiv:2501.18795).
"""

from __future__ import annotations

from typing import Final

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Sight, Traits, file_turn

PERIOD: Final = 4
"""No key of the file tells it; llama.cpp has the same number."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "smollm3")
    # llama.cpp's converter has reordered the rows of q and k, so that neighbours turn together.
    turning, still = Sight(file_turn(config, load, context, "interleaved")), Sight(None)
    return Decoder(config, load, context, Traits(lambda index: turning if (index + 1) % PERIOD else still))
