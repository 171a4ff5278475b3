"""The `qwen3vlmoe` architecture of GGUF files: the mixtures of experts of Qwen3-VL's text part.

Qwen3-VL Technical Report (arXiv:2511.21631).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.qwen3vl import seeing


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen3vlmoe", mixture=True)
    keys = metadata.under("qwen3vlmoe")
    mixture = Mixture.read(keys)
    return Decoder(config, load, context, seeing(config, keys, load, context), feed_forward=mixture.feed_forward)
