"""The numbers of a decoder, read from the keys that GGUF gives to every architecture.

Keys are those of the GGUF specification; defaults are those that llama.cpp applies to all architectures alike
(`load_hparams`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.metadata import Metadata
from engine.models.scaling import MAX_CONTEXT, Scaling

MAX_LAYERS: Final = 2**12
MAX_WIDTH: Final = 2**22
MAX_HEADS: Final = 2**12
MAX_HEAD_DIM: Final = 2**12
MAX_VOCABULARY: Final = 2**24
MAX_EXPERTS: Final = 2**16
MAX_POOLING_TYPE: Final = 2**8


@dataclass(frozen=True)
class Config:
    """The numbers of one model. Blocks that only draft tokens are not among its layers."""

    n_layers: int
    context_length: int
    hidden_size: int
    intermediate_size: int
    n_heads: int
    n_kv_heads: int
    key_dim: int
    value_dim: int
    rotary_dim: int
    rope_theta: float
    scaling: Scaling
    eps: float
    vocabulary: int

    @staticmethod
    def read(metadata: Metadata, architecture: str, *, mixture: bool = False, log_multiplier: bool = False) -> Config:
        """The numbers that stand under `architecture`, such as "llama", in a file's metadata.

        With `mixture` the family runs mixtures of experts, whose own numbers `engine.models.moe` reads. For
        `log_multiplier` see `Scaling.read`.
        Raises ModelFileError for what cannot be true, UnsupportedModelError for what is not run.
        """
        keys = metadata.under(architecture)
        if not mixture and keys.integer("expert_count", low=0, high=MAX_EXPERTS, default=0) > 0:
            raise UnsupportedModelError(
                f"The model is a mixture of experts ({keys.whole('expert_count')}), which this engine does not run yet "
                "for its architecture."
            )
        if keys.integer("pooling_type", low=0, high=MAX_POOLING_TYPE, default=0) > 0:
            raise _no_answers(keys.whole("pooling_type"))
        if not keys.flag("attention.causal", default=True):
            raise _no_answers(keys.whole("attention.causal"))
        hidden_size = keys.integer("embedding_length", high=MAX_WIDTH)
        n_heads = keys.integer("attention.head_count", high=MAX_HEADS)
        n_kv_heads = keys.integer("attention.head_count_kv", high=n_heads, default=n_heads)
        if n_heads % n_kv_heads:
            raise ModelFileError(
                f"The model file's {n_heads} query heads ({keys.whole('attention.head_count')}) cannot be shared "
                f"evenly among {n_kv_heads} key heads ({keys.whole('attention.head_count_kv')}); the file is damaged, "
                "fetch it again."
            )
        split = hidden_size // n_heads
        own_widths = "attention.key_length" in keys and "attention.value_length" in keys
        if hidden_size % n_heads and not own_widths:
            raise ModelFileError(
                f"The model file's {keys.whole('embedding_length')} {hidden_size} cannot be split among {n_heads} "
                f"heads ({keys.whole('attention.head_count')}), and it gives no width of a head; the file is damaged, "
                "fetch it again."
            )
        key_dim = keys.integer("attention.key_length", high=MAX_HEAD_DIM, default=split)
        rotary_dim = keys.integer("rope.dimension_count", low=2, high=key_dim, default=key_dim)
        if rotary_dim % 2:
            raise ModelFileError(
                f"The model file's {keys.whole('rope.dimension_count')} is {rotary_dim}, but elements turn in pairs; "
                "the file is damaged, fetch it again."
            )
        context_length = keys.integer("context_length", high=MAX_CONTEXT)
        blocks = keys.integer("block_count", high=MAX_LAYERS)
        drafting = keys.integer("nextn_predict_layers", low=0, high=blocks - 1, default=0)
        return Config(
            n_layers=blocks - drafting,
            context_length=context_length,
            hidden_size=hidden_size,
            # A family whose layers are all mixtures may have no other width than its experts'.
            intermediate_size=keys.integer(
                f"{'expert_' if mixture and 'feed_forward_length' not in keys else ''}feed_forward_length",
                high=MAX_WIDTH,
            ),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            key_dim=key_dim,
            value_dim=keys.integer("attention.value_length", high=MAX_HEAD_DIM, default=split),
            rotary_dim=rotary_dim,
            rope_theta=keys.number("rope.freq_base", low=1.001, high=1e15, default=10000.0),
            scaling=Scaling.read(keys, context_length, log_multiplier=log_multiplier),
            eps=keys.number("attention.layer_norm_rms_epsilon", low=1e-12, high=1.0),
            vocabulary=_vocabulary(metadata, keys),
        )


def _no_answers(key: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"The model makes embeddings or ranks texts ({key}), not answers; choose another.")


def _vocabulary(metadata: Metadata, keys: Metadata) -> int:
    """Rows of the embedding: one for each token of the list, so that every token has one; `vocab_size` where there is
    no list."""
    tokens = metadata.length("tokenizer.ggml.tokens", high=MAX_VOCABULARY)
    return tokens or keys.integer("vocab_size", high=MAX_VOCABULARY)
