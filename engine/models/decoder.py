"""The decoder that most families share: a block that looks at other positions, mostly attention, then one that looks at
one position, mostly a feed-forward, each on normed input and added back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.kernels.ops import Handle, LayerCache, LayerSpec, Ops, Rotary, Tensor
from engine.models.blocks import Attention, FeedForward, matrix_scale
from engine.models.config import Config
from engine.models.insets import deepened, embedded, mutual
from engine.models.model import OWN, Inset, Tables, WeightLoader
from engine.models.traits import Traits


class Mixer(Protocol):
    """A block that looks at other positions."""

    @property
    def cache(self) -> LayerSpec: ...

    def add(
        self,
        ops: Ops,
        x: Tensor,
        normed: Tensor,
        rotary: Rotary | None,
        cache: LayerCache,
        start: int,
        until: Sequence[int] | None = None,
    ) -> Tensor:
        """x + what the block makes of the rows `normed` at positions `start …`: → [n, hidden_size].

        `until` is that of `Ops.attention`.
        """
        ...


class PerPosition(Protocol):
    """A block that looks at one position."""

    def add(self, ops: Ops, x: Tensor, normed: Tensor) -> Tensor:
        """x + what the block makes of the rows `normed`: → [n, hidden_size]."""
        ...


ReadMixer = Callable[[Config, Traits, WeightLoader, int], Mixer]
ReadFeedForward = Callable[[Config, Traits, WeightLoader, int], PerPosition]
"""How a family reads the block of the layer with this index."""


@dataclass(frozen=True)
class Layer:
    mixer_norm: Handle
    mixer: Mixer
    ffn_norm: Handle
    feed_forward: PerPosition


def head(config: Config, load: WeightLoader) -> Handle:
    """The head that a file has of its own."""
    scale = matrix_scale(load, "output.scale")
    return load.matrix("output.weight", config.vocabulary, config.hidden_size, scale=scale)


class Decoder:
    """A `Model`. Its head is the embedding where the file has none of its own."""

    def __init__(
        self,
        config: Config,
        load: WeightLoader,
        context: int,
        traits: Traits,
        *,
        mixer: ReadMixer = Attention.read,
        feed_forward: ReadFeedForward = FeedForward.read,
    ) -> None:
        self.config = config
        self.traits = traits
        self.context_length = min(context, config.context_length)
        self.vocabulary = config.vocabulary
        self.inset_width = config.hidden_size * (1 + traits.inset_levels)
        self.embedding = load.matrix("token_embd.weight", config.vocabulary, config.hidden_size)
        self.layers = tuple(
            Layer(
                mixer_norm=load.vector(f"blk.{index}.attn_norm.weight", config.hidden_size),
                mixer=mixer(config, traits, load, index),
                ffn_norm=load.vector(f"blk.{index}.{traits.ffn_norm}.weight", config.hidden_size),
                feed_forward=feed_forward(config, traits, load, index),
            )
            for index in range(config.n_layers)
        )
        self.caches = tuple(layer.mixer.cache for layer in self.layers)
        self.norm = load.vector("output_norm.weight", config.hidden_size)
        tied = not load.has("output.weight")
        self.head = self.embedding if tied else head(config, load)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        self.layer_turns = tuple(traits.sight(index).turn for index in range(config.n_layers))
        distinct = [turn for turn in dict.fromkeys(self.layer_turns) if turn is not None]
        self.tables = {turn: turn.table(self.context_length) for turn in distinct}
        self.turns = tuple(turn for turn in distinct if turn.axes is not None)

    def hidden(
        self,
        ops: Ops,
        tokens: Sequence[int],
        start: int,
        caches: Sequence[LayerCache],
        *,
        tables: Tables = OWN,
        insets: Sequence[Inset] = (),
    ) -> Tensor:
        scale, width, eps = self.traits.embedding_scale, self.config.hidden_size, self.config.eps
        x = embedded(ops, lambda some: ops.embed(self.embedding, some, scale=scale), tokens, insets, width)
        until = mutual(insets, start, len(tokens)) if self.traits.mutual_insets else None
        turned = {**self.tables, **tables}
        for index, (layer, turn, cache) in enumerate(zip(self.layers, self.layer_turns, caches, strict=True)):
            rotary = None if turn is None else turned[turn]
            normed = ops.rms_norm(x, layer.mixer_norm, eps)
            x = layer.mixer.add(ops, x, normed, rotary, cache, start, until)
            normed = ops.rms_norm(x, layer.ffn_norm, eps)
            x = layer.feed_forward.add(ops, x, normed)
            x = deepened(ops, x, insets, index, width)
        return ops.rms_norm(x, self.norm, eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.linear(hidden, self.head, softcap=self.traits.logit_softcap)
