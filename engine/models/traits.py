"""What sets one family of decoders apart from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.errors import ModelFileError
from engine.kernels.ops import Activation, InputRounding
from engine.models.config import Config
from engine.models.model import WeightLoader
from engine.models.rotary import Axes, Style, Turn


@dataclass(frozen=True)
class Sight:
    """What a layer makes of positions: they turn its queries and keys, or do not where `turn` is `None`; it sees the
    last `window` of them, its own included, or all where `window` is `None`."""

    turn: Turn | None
    window: int | None = None


@dataclass(frozen=True)
class Traits:
    """The family's own ways.

    `sight` tells of each layer by its index. `biased`: queries, keys and values always have biases; in other families
    they are taken where the file has them. `biased_throughout`: so do all other matrices of a layer. `head_norms`:
    every head of the queries and keys is normed. `fused`: one matrix makes queries, keys and values, one the gate and
    what it gates. `output_gates`: one matrix makes each head's queries and, after them, gates whose sigmoid multiplies
    what the head makes. `post_norms`: what a block makes is normed before it is added; `sub_norms`: what its last
    projection takes is normed. `activations` says how the layers' projections round their input. `sinks`: a logit of
    each query head takes its share of the attention. `ffn_norm` names the norm before the second block.
    `attention_scale` multiplies the scores, 1/√key_dim where it is `None`. `mutual_insets`: all rows of a picture see
    each other. `inset_levels`: features of pictures that are added after so many layers.
    """

    sight: Callable[[int], Sight]
    biased: bool = False
    biased_throughout: bool = False
    head_norms: bool = False
    fused: bool = False
    output_gates: bool = False
    post_norms: bool = False
    sub_norms: bool = False
    activations: InputRounding = "blocks"
    sinks: bool = False
    ffn_norm: str = "ffn_norm"
    activation: Activation = "silu"
    attention_scale: float | None = None
    attention_softcap: float | None = None
    embedding_scale: float = 1.0
    logit_softcap: float | None = None
    mutual_insets: bool = False
    inset_levels: int = 0


def same_sight(sight: Sight) -> Callable[[int], Sight]:
    """The sight of every layer."""
    return lambda index: sight


def file_turn(config: Config, load: WeightLoader, context: int, style: Style, axes: Axes | None = None) -> Turn:
    """The rotary positions that a file describes, for `context` of them; `axes` as in `Turn`.

    Each frequency is divided by its number in `rope_freqs.weight`, where Llama 3 keeps them, or in one of LongRoPE's
    two lists: the long one where more positions are kept than the model was first trained on.
    """
    scaling = config.scaling
    frequencies = scaling.frequencies(config.rope_theta, config.rotary_dim)
    name = None
    if load.has("rope_freqs.weight"):
        name = "rope_freqs.weight"
    elif scaling.kind == "longrope" or load.has("rope_factors_long.weight"):
        longer = min(context, config.context_length) > scaling.original_context
        name = "rope_factors_long.weight" if longer else "rope_factors_short.weight"
    if name is not None:
        divisors = load.host(name, config.rotary_dim // 2).astype(np.float64)
        if not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise ModelFileError(
                f"The model file's {name} holds a number that is not above zero; the file is damaged, fetch it again."
            )
        frequencies = frequencies / divisors
    return Turn(frequencies, style, scaling.amplitude, axes)
