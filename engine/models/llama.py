"""The `llama` architecture of GGUF files: Llama 2 and 3, SmolLM2, Mistral and others of their shape.

Touvron et al., LLaMA (arXiv:2302.13971). Keys and tensor names are those of the GGUF specification; defaults are those
that llama.cpp applies to this architecture (`load_hparams`).
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.errors import ContextError, ModelFileError, UnsupportedModelError
from engine.kernels.ops import AttentionSpec, CacheSpec, Handle, LayerCache, Ops, Tensor
from engine.models.config import Metadata
from engine.models.model import WeightLoader
from engine.models.rotary import F64, inverse_frequencies, rotary_table

MAX_LAYERS: Final = 2**12
MAX_WIDTH: Final = 2**22
MAX_HEADS: Final = 2**12
MAX_HEAD_DIM: Final = 2**12
MAX_VOCABULARY: Final = 2**24
MAX_CONTEXT: Final = 2**31
MAX_EXPERTS: Final = 2**16


@dataclass(frozen=True)
class Config:
    """The numbers of one model. `rope_factor` stretches positions (linear scaling); 1 leaves them."""

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
    rope_factor: float
    eps: float
    vocabulary: int

    @staticmethod
    def read(metadata: Metadata) -> Config:
        if metadata.integer("llama.expert_count", low=0, high=MAX_EXPERTS, default=0) > 0:
            raise UnsupportedModelError(
                "The model is a mixture of experts (llama.expert_count), which this engine does not run yet."
            )
        hidden_size = metadata.integer("llama.embedding_length", high=MAX_WIDTH)
        n_heads = metadata.integer("llama.attention.head_count", high=MAX_HEADS)
        n_kv_heads = metadata.integer("llama.attention.head_count_kv", high=n_heads, default=n_heads)
        if n_heads % n_kv_heads:
            raise ModelFileError(
                f"The model file's {n_heads} query heads (llama.attention.head_count) cannot be shared evenly among "
                f"{n_kv_heads} key heads (llama.attention.head_count_kv); the file is damaged, fetch it again."
            )
        split = hidden_size // n_heads
        own_widths = "llama.attention.key_length" in metadata and "llama.attention.value_length" in metadata
        if hidden_size % n_heads and not own_widths:
            raise ModelFileError(
                f"The model file's llama.embedding_length {hidden_size} cannot be split among {n_heads} heads "
                "(llama.attention.head_count), and it gives no width of a head; the file is damaged, fetch it again."
            )
        key_dim = metadata.integer("llama.attention.key_length", high=MAX_HEAD_DIM, default=split)
        rotary_dim = metadata.integer("llama.rope.dimension_count", low=2, high=key_dim, default=key_dim)
        if rotary_dim % 2:
            raise ModelFileError(
                f"The model file's llama.rope.dimension_count is {rotary_dim}, but elements turn in pairs; the file is "
                "damaged, fetch it again."
            )
        return Config(
            n_layers=metadata.integer("llama.block_count", high=MAX_LAYERS),
            context_length=metadata.integer("llama.context_length", high=MAX_CONTEXT),
            hidden_size=hidden_size,
            intermediate_size=metadata.integer("llama.feed_forward_length", high=MAX_WIDTH),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            key_dim=key_dim,
            value_dim=metadata.integer("llama.attention.value_length", high=MAX_HEAD_DIM, default=split),
            rotary_dim=rotary_dim,
            rope_theta=metadata.number("llama.rope.freq_base", low=1.0, high=1e15, default=10000.0),
            rope_factor=_rope_factor(metadata),
            eps=metadata.number("llama.attention.layer_norm_rms_epsilon", low=1e-12, high=1.0),
            vocabulary=_vocabulary(metadata),
        )


def _rope_factor(metadata: Metadata) -> float:
    kind = metadata.text("llama.rope.scaling.type", default="linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise UnsupportedModelError(
            f"The model's rotary scaling {reprlib.repr(kind)} (llama.rope.scaling.type) is not one of those known: "
            "none, linear."
        )
    older_name = metadata.number("llama.rope.scale_linear", low=1.0, high=1e6, default=1.0)
    return metadata.number("llama.rope.scaling.factor", low=1.0, high=1e6, default=older_name)


def _vocabulary(metadata: Metadata) -> int:
    """Rows of the embedding: one for each token of the list, so that every token has one; `vocab_size` where there is
    no list."""
    tokens = metadata.length("tokenizer.ggml.tokens", high=MAX_VOCABULARY)
    return tokens or metadata.integer("llama.vocab_size", high=MAX_VOCABULARY)


@dataclass(frozen=True)
class Layer:
    """The weights of one layer. A bias is `None` where the file has none."""

    attention_norm: Handle
    q: Handle
    k: Handle
    v: Handle
    q_bias: Handle | None
    k_bias: Handle | None
    v_bias: Handle | None
    output: Handle
    output_bias: Handle | None
    ffn_norm: Handle
    gate: Handle
    up: Handle
    down: Handle

    @staticmethod
    def read(config: Config, load: WeightLoader, index: int) -> Layer:
        def matrix(name: str, rows: int, columns: int) -> Handle:
            return load.matrix(f"blk.{index}.{name}.weight", rows, columns)

        def norm(name: str) -> Handle:
            return load.vector(f"blk.{index}.{name}.weight", config.hidden_size)

        def bias(name: str, width: int) -> Handle | None:
            name = f"blk.{index}.{name}.bias"
            return load.vector(name, width) if load.has(name) else None

        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            if load.has(f"blk.{index}.{name}.bias"):
                raise UnsupportedModelError(
                    f"The model has a bias in its feed-forward layers (blk.{index}.{name}.bias), which this engine "
                    "does not run yet."
                )
        queries, outputs = config.n_heads * config.key_dim, config.n_heads * config.value_dim
        keys, values = config.n_kv_heads * config.key_dim, config.n_kv_heads * config.value_dim
        return Layer(
            attention_norm=norm("attn_norm"),
            q=matrix("attn_q", queries, config.hidden_size),
            k=matrix("attn_k", keys, config.hidden_size),
            v=matrix("attn_v", values, config.hidden_size),
            q_bias=bias("attn_q", queries),
            k_bias=bias("attn_k", keys),
            v_bias=bias("attn_v", values),
            output=matrix("attn_output", config.hidden_size, outputs),
            output_bias=bias("attn_output", config.hidden_size),
            ffn_norm=norm("ffn_norm"),
            gate=matrix("ffn_gate", config.intermediate_size, config.hidden_size),
            up=matrix("ffn_up", config.intermediate_size, config.hidden_size),
            down=matrix("ffn_down", config.hidden_size, config.intermediate_size),
        )

    def project(self, ops: Ops, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the normed rows `x`."""
        if self.q_bias is None and self.k_bias is None and self.v_bias is None:
            q, k, v = ops.linears(x, (self.q, self.k, self.v))
            return q, k, v
        return (
            ops.linear(x, self.q, bias=self.q_bias),
            ops.linear(x, self.k, bias=self.k_bias),
            ops.linear(x, self.v, bias=self.v_bias),
        )


class Llama:
    """A `Model`: attention with rotary positions, then a gated feed-forward, each on normed input and added back."""

    def __init__(self, config: Config, load: WeightLoader, context: int) -> None:
        self.config = config
        self.context_length = min(context, config.context_length)
        self.vocabulary = config.vocabulary
        self.caches = (CacheSpec(config.n_kv_heads, config.key_dim, config.value_dim),) * config.n_layers
        self.attention = AttentionSpec(config.n_heads, 1 / math.sqrt(config.key_dim))
        self.embedding = load.matrix("token_embd.weight", config.vocabulary, config.hidden_size)
        self.layers = tuple(Layer.read(config, load, index) for index in range(config.n_layers))
        self.norm = load.vector("output_norm.weight", config.hidden_size)
        tied = not load.has("output.weight")
        self.head = self.embedding if tied else load.matrix("output.weight", config.vocabulary, config.hidden_size)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        self.rotary = rotary_table(_frequencies(config, load), self.context_length, "interleaved")

    @staticmethod
    def build(metadata: Metadata, load: WeightLoader, context: int) -> Llama:
        return Llama(Config.read(metadata), load, context)

    def hidden(self, ops: Ops, tokens: Sequence[int], start: int, caches: Sequence[LayerCache]) -> Tensor:
        if start + len(tokens) > self.context_length:
            raise ContextError(
                f"The text needs {start + len(tokens)} positions, but the context holds {self.context_length}; shorten "
                "it or allow a longer context."
            )
        config = self.config
        x = ops.embed(self.embedding, tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            normed = ops.rms_norm(x, layer.attention_norm, config.eps)
            q, k, v = layer.project(ops, normed)
            q = ops.rotary(q, config.n_heads, self.rotary, start)
            k = ops.rotary(k, config.n_kv_heads, self.rotary, start)
            attended = ops.attention(q, k, v, cache, self.attention, start)
            x = ops.linear(attended, layer.output, bias=layer.output_bias, residual=x)
            normed = ops.rms_norm(x, layer.ffn_norm, config.eps)
            gated = ops.gated_silu(normed, layer.gate, layer.up)
            x = ops.linear(gated, layer.down, residual=x)
        return ops.rms_norm(x, self.norm, config.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.linear(hidden, self.head)


def _frequencies(config: Config, load: WeightLoader) -> F64:
    """Radians per position: float64 [rotary_dim/2]. Llama 3 stores a divisor for each in `rope_freqs.weight`."""
    frequencies = inverse_frequencies(config.rope_theta, config.rotary_dim) / config.rope_factor
    if load.has("rope_freqs.weight"):
        divisors = load.host("rope_freqs.weight", config.rotary_dim // 2).astype(np.float64)
        if not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise ModelFileError(
                "The model file's rope_freqs.weight holds a number that is not above zero; the file is damaged, fetch "
                "it again."
            )
        frequencies = frequencies / divisors
    return frequencies
