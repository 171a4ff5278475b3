"""The text part of the `qwen35moe` architecture of GGUF files: the mixtures of experts of Qwen3.5.

A token's answer from the shared expert is gated by a number of its own.

Qwen Team, Qwen3.5 (2026).
"""

from __future__ import annotations

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import Mixture
from engine.models.qwen35 import hybrid


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "qwen35moe", mixture=True)
    keys = metadata.under("qwen35moe")
    traits, mixer = hybrid(config, keys, load, context)
    return Decoder(config, load, context, traits, mixer=mixer, feed_forward=Mixture.read(keys).feed_forward)
