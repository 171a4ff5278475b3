"""The `llama` architecture of GGUF files: Llama 2 and 3, SmolLM2, Mistral and others of their shape.

Touvron et al., LLaMA (arXiv:2302.13971).
"""

from __future__ import annotations

import numpy as np

from engine.errors import ModelFileError
from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.rotary import F64


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, "llama")
    # llama.cpp's converter has reordered the rows of q and k, so that neighbours turn together.
    return Decoder(config, load, context, _frequencies(config, load), "interleaved")


def _frequencies(config: Config, load: WeightLoader) -> F64:
    """Radians per position: float64 [rotary_dim/2]. Llama 3 stores a divisor for each in `rope_freqs.weight`."""
    frequencies = config.frequencies()
    if load.has("rope_freqs.weight"):
        divisors = load.host("rope_freqs.weight", config.rotary_dim // 2).astype(np.float64)
        if not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise ModelFileError(
                "The model file's rope_freqs.weight holds a number that is not above zero; the file is damaged, fetch "
                "it again."
            )
        frequencies = frequencies / divisors
    return frequencies
