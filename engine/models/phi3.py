"""The `phi3` architecture of GGUF files: Phi-3, Phi-3.5 and Phi-4, with fused projections and a window.

Abdin et al., Phi-3 Technical Report (arXiv:2404.14219).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.scaling import MAX_CONTEXT
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "phi3")
    # The converter writes 0 for a model without a window, such as Phi-4.
    window = metadata.under("phi3").integer("attention.sliding_window", low=0, high=MAX_CONTEXT, default=0)
    sight = Sight(file_turn(config, load, context, "halves"), window or None)
    return Decoder(config, load, context, Traits(same_sight(sight), fused=True))
