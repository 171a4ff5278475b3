"""The `gpt-oss` architecture of GGUF files: GPT-OSS, whose attention has sinks and whose experts have biases.

OpenAI, gpt-oss-120b & gpt-oss-20b Model Card (arXiv:2508.10925).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.moe import SOFTMAX_OF_CHOSEN, Mixture
from engine.models.scaling import MAX_CONTEXT
from engine.models.traits import Sight, Traits, file_turn

PERIOD: Final = 2
"""Every so many layers see all positions; the others see a window."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "gpt-oss", mixture=True)
    # The published configuration says so; no key of the file does.
    config = replace(config, scaling=replace(config.scaling, whole_pairs=False))
    keys = metadata.under("gpt-oss")
    far = Sight(file_turn(config, load, context, "halves"))
    near = replace(far, window=keys.integer("attention.sliding_window", high=MAX_CONTEXT))
    traits = Traits(
        sight=lambda index: near if (index + 1) % PERIOD else far,
        biased=True,
        biased_throughout=True,
        sinks=True,
        ffn_norm="post_attention_norm",
        activation="swiglu_clamped",
    )
    mixture = Mixture.read(keys, gating=SOFTMAX_OF_CHOSEN)
    return Decoder(config, load, context, traits, feed_forward=mixture.feed_forward)
