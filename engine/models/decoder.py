"""The dense decoder that most families share: attention, then a feed-forward, each on normed input and added back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.kernels.ops import Handle, LayerCache, Ops, Tensor
from engine.models.blocks import Attention, FeedForward
from engine.models.config import Config
from engine.models.model import WeightLoader
from engine.models.rotary import F64, Style, rotary_table


@dataclass(frozen=True)
class Layer:
    attention_norm: Handle
    attention: Attention
    ffn_norm: Handle
    feed_forward: FeedForward

    @staticmethod
    def read(config: Config, load: WeightLoader, index: int, *, head_norms: bool) -> Layer:
        return Layer(
            attention_norm=load.vector(f"blk.{index}.attn_norm.weight", config.hidden_size),
            attention=Attention.read(config, load, index, head_norms=head_norms),
            ffn_norm=load.vector(f"blk.{index}.ffn_norm.weight", config.hidden_size),
            feed_forward=FeedForward.read(config, load, index),
        )


class Decoder:
    """A `Model`. Its head is the embedding where the file has none of its own."""

    def __init__(
        self,
        config: Config,
        load: WeightLoader,
        context: int,
        frequencies: F64,
        style: Style,
        *,
        head_norms: bool = False,
    ) -> None:
        """`frequencies` float64 [rotary_dim/2] and `style` are those of its rotary positions; `head_norms` says that
        every head of the queries and keys is normed."""
        self.config = config
        self.context_length = min(context, config.context_length)
        self.vocabulary = config.vocabulary
        self.embedding = load.matrix("token_embd.weight", config.vocabulary, config.hidden_size)
        self.layers = tuple(Layer.read(config, load, i, head_norms=head_norms) for i in range(config.n_layers))
        self.caches = tuple(layer.attention.cache for layer in self.layers)
        self.norm = load.vector("output_norm.weight", config.hidden_size)
        tied = not load.has("output.weight")
        self.head = self.embedding if tied else load.matrix("output.weight", config.vocabulary, config.hidden_size)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        self.rotary = rotary_table(frequencies, self.context_length, style)

    def hidden(self, ops: Ops, tokens: Sequence[int], start: int, caches: Sequence[LayerCache]) -> Tensor:
        x = ops.embed(self.embedding, tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            normed = ops.rms_norm(x, layer.attention_norm, self.config.eps)
            x = layer.attention.add(ops, x, normed, self.rotary, cache, start)
            normed = ops.rms_norm(x, layer.ffn_norm, self.config.eps)
            x = layer.feed_forward.add(ops, x, normed)
        return ops.rms_norm(x, self.norm, self.config.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.linear(hidden, self.head)
