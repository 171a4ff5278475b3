"""The dense decoder that most families share: attention, then a feed-forward, each on normed input and added back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.kernels.ops import Handle, LayerCache, Ops, Tensor
from engine.models.blocks import Attention, FeedForward
from engine.models.config import Config
from engine.models.model import WeightLoader
from engine.models.traits import Traits


@dataclass(frozen=True)
class Layer:
    attention_norm: Handle
    attention: Attention
    ffn_norm: Handle
    feed_forward: FeedForward

    @staticmethod
    def read(config: Config, traits: Traits, load: WeightLoader, index: int) -> Layer:
        return Layer(
            attention_norm=load.vector(f"blk.{index}.attn_norm.weight", config.hidden_size),
            attention=Attention.read(config, traits, load, index),
            ffn_norm=load.vector(f"blk.{index}.ffn_norm.weight", config.hidden_size),
            feed_forward=FeedForward.read(config, traits, load, index),
        )


class Decoder:
    """A `Model`. Its head is the embedding where the file has none of its own."""

    def __init__(self, config: Config, load: WeightLoader, context: int, traits: Traits) -> None:
        self.config = config
        self.traits = traits
        self.context_length = min(context, config.context_length)
        self.vocabulary = config.vocabulary
        self.embedding = load.matrix("token_embd.weight", config.vocabulary, config.hidden_size)
        self.layers = tuple(Layer.read(config, traits, load, index) for index in range(config.n_layers))
        self.caches = tuple(layer.attention.cache for layer in self.layers)
        self.norm = load.vector("output_norm.weight", config.hidden_size)
        tied = not load.has("output.weight")
        self.head = self.embedding if tied else load.matrix("output.weight", config.vocabulary, config.hidden_size)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        turns = [traits.sight(index).turn for index in range(config.n_layers)]
        tables = {turn: turn.table(self.context_length) for turn in dict.fromkeys(turns) if turn is not None}
        self.rotary = tuple(None if turn is None else tables[turn] for turn in turns)

    def hidden(self, ops: Ops, tokens: Sequence[int], start: int, caches: Sequence[LayerCache]) -> Tensor:
        x = ops.embed(self.embedding, tokens, scale=self.traits.embedding_scale)
        for layer, rotary, cache in zip(self.layers, self.rotary, caches, strict=True):
            normed = ops.rms_norm(x, layer.attention_norm, self.config.eps)
            x = layer.attention.add(ops, x, normed, rotary, cache, start)
            normed = ops.rms_norm(x, layer.ffn_norm, self.config.eps)
            x = layer.feed_forward.add(ops, x, normed)
        return ops.rms_norm(x, self.norm, self.config.eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.linear(hidden, self.head, softcap=self.traits.logit_softcap)
