"""BitNet b1.58, whose projections have ternary weights and take activations of int8, one scale a token.

Ma et al., The Era of 1-bit LLMs (arXiv:2402.17764); Ma et al., BitNet b1.58 2B4T (arXiv:2504.12285). The rounding of
activations is part of the training, and so of the answer; the head rounds nothing. Two architectures of GGUF files:
`bitnet` of llama.cpp, whose gate is a SiLU, and `bitnet-b1.58` of bitnet.cpp's fork, whose gate is a squared ReLU. No
key of the file tells the gate.
"""

from __future__ import annotations

from engine.kernels.ops import Activation
from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Sight, Traits, file_turn, same_sight


def build(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    return _build("bitnet", "silu", metadata, load, context)


def build_b158(metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    return _build("bitnet-b1.58", "relu_squared", metadata, load, context)


def _build(name: str, gate: Activation, metadata: Metadata, load: WeightLoader, context: int) -> Decoder:
    config = Config.read(metadata, name)
    sight = Sight(file_turn(config, load, context, "halves"))
    traits = Traits(same_sight(sight), sub_norms=True, activations="token", activation=gate)
    return Decoder(config, load, context, traits)
