"""The text part of the `gemma4` architecture of GGUF files: Gemma 4, with or without inputs for each layer and experts.

Gemma Team, Gemma 4 (2026). Keys, tensors and defaults are those of llama.cpp (`llama_model_gemma4`), the mathematics
those of Transformers (`Gemma4TextModel`). Norms multiply with their weights as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.kernels.ops import AttentionSpec, CacheSpec, Handle, LayerCache, LayerSpec, Ops, Rotary, Tensor
from engine.models.blocks import FeedForward, projection, refuse
from engine.models.config import Config
from engine.models.decoder import PerPosition, head
from engine.models.gemma4_mixture import MixedFeedForward
from engine.models.gemma4_numbers import Numbers
from engine.models.insets import embedded, mutual
from engine.models.metadata import Metadata
from engine.models.model import OWN, Inset, Tables, WeightLoader
from engine.models.rotary import Turn, inverse_frequencies
from engine.models.traits import Sight, Traits, file_turn, same_sight

PADDING: Final = 0
"""The token of every Gemma vocabulary that fills gaps."""
TRAITS: Final = Traits(same_sight(Sight(None)), post_norms=True, activation="gelu_tanh")
"""Of the feed-forward layers, which positions do not concern."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Gemma4:
    return Gemma4(Numbers.read(metadata), load, context)


@dataclass(frozen=True)
class KeysValues:
    """What makes the keys and values of a layer that stores them. Without `v`, values are keys before their norm."""

    k: Handle
    v: Handle | None
    k_norm: Handle
    ones: Handle
    """The norm of values has no weight."""

    @staticmethod
    def read(load: WeightLoader, index: int, config: Config, cache: CacheSpec, *, local: bool) -> KeysValues:
        rows, width = cache.n_kv_heads * cache.key_dim, config.hidden_size
        own = local or load.has(f"blk.{index}.attn_v.weight")
        return KeysValues(
            k=projection(load, index, "attn_k", rows, width),
            v=projection(load, index, "attn_v", rows, width) if own else None,
            k_norm=load.vector(f"blk.{index}.attn_k_norm.weight", cache.key_dim),
            ones=load.made(np.ones(cache.value_dim, np.float32)),
        )


@dataclass(frozen=True)
class Attention:
    """`slot` is the place of its cache among the model's, which the first layers have: the number of the layer that
    fills it. `stored` is `None` where that is another one."""

    spec: AttentionSpec
    cache: CacheSpec
    slot: int
    eps: float
    q: Handle
    q_norm: Handle
    stored: KeysValues | None
    output: Handle
    post_norm: Handle

    @staticmethod
    def read(numbers: Numbers, load: WeightLoader, index: int) -> Attention:
        config, local, slot = numbers.config, numbers.local[index], numbers.lender(index)
        dim = numbers.local_dim if local else config.key_dim
        cache = CacheSpec(numbers.n_kv_heads[slot], dim, dim)
        refuse(load, f"blk.{index}.attn_qkv.weight", "its queries, keys and values in one matrix")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            refuse(load, f"blk.{index}.{name}.bias", "a bias in its attention layers")
        if slot != index:  # published files keep what such a layer was trained with, but does not use
            for name in ("attn_k", "attn_v", "attn_k_norm"):
                load.skip(f"blk.{index}.{name}.weight")
        rows = config.n_heads * dim
        return Attention(
            spec=AttentionSpec(config.n_heads, 1.0, numbers.window if local else None),
            cache=cache,
            slot=slot,
            eps=config.eps,
            q=projection(load, index, "attn_q", rows, config.hidden_size),
            q_norm=load.vector(f"blk.{index}.attn_q_norm.weight", dim),
            stored=KeysValues.read(load, index, config, cache, local=local) if slot == index else None,
            output=projection(load, index, "attn_output", config.hidden_size, rows),
            post_norm=load.vector(f"blk.{index}.post_attention_norm.weight", config.hidden_size),
        )

    def add(
        self,
        ops: Ops,
        x: Tensor,
        normed: Tensor,
        rotary: Rotary,
        cache: LayerCache,
        start: int,
        until: Sequence[int] | None,
    ) -> Tensor:
        """x + attention of the rows `normed` at positions `start …`: → [n, hidden_size]."""
        k = v = None
        if self.stored is None:
            q = ops.linear(normed, self.q)
        elif self.stored.v is None:
            q, k = ops.linears(normed, (self.q, self.stored.k))
            v = k
        else:
            q, k, v = ops.linears(normed, (self.q, self.stored.k, self.stored.v))
        q = ops.rotary(ops.rms_norm(q, self.q_norm, self.eps), self.spec.n_heads, rotary, start)
        if self.stored is not None:
            k = ops.rotary(ops.rms_norm(k, self.stored.k_norm, self.eps), self.cache.n_kv_heads, rotary, start)
            v = ops.rms_norm(v, self.stored.ones, self.eps)
        made = ops.linear(ops.attention(q, k, v, cache, self.spec, start, until=until), self.output)
        return ops.rms_norm(made, self.post_norm, self.eps, residual=x)


@dataclass(frozen=True)
class OwnInput:
    """What a layer adds of its own input, through a gate."""

    eps: float
    gate: Handle
    output: Handle
    post_norm: Handle

    @staticmethod
    def read(numbers: Numbers, load: WeightLoader, index: int) -> OwnInput:
        width, hidden = numbers.input_width, numbers.config.hidden_size
        return OwnInput(
            eps=numbers.config.eps,
            gate=projection(load, index, "inp_gate", width, hidden),
            output=projection(load, index, "proj", hidden, width),
            post_norm=load.vector(f"blk.{index}.post_norm.weight", hidden),
        )

    def add(self, ops: Ops, x: Tensor, own: Tensor) -> Tensor:
        """x + what comes of `own` [n, input_width]: → [n, hidden_size]."""
        gated = ops.gate(ops.linear(x, self.gate), own, "gelu_tanh")
        return ops.rms_norm(ops.linear(gated, self.output), self.post_norm, self.eps, residual=x)


class Inputs:
    """The input of every layer: a token's row of a table of its own, and a share of its embedding."""

    def __init__(self, numbers: Numbers, load: WeightLoader) -> None:
        config, width = numbers.config, numbers.input_width
        self.width, self.eps, self.hidden_size = width, config.eps, config.hidden_size
        self.table = load.matrix("per_layer_token_embd.weight", config.vocabulary, config.n_layers * width)
        self.projection = load.matrix("per_layer_model_proj.weight", config.n_layers * width, config.hidden_size)
        self.norm = load.vector("per_layer_proj_norm.weight", width)

    def of(self, ops: Ops, tokens: Sequence[int], x: Tensor) -> Tensor:
        """[n, n_layers · width], of the tokens and their embeddings x.

        A row of a picture has no token: the padding token's stands for it here (Transformers, `Gemma4Model.forward`).
        """
        known = [max(token, PADDING) for token in tokens]
        rows = ops.embed(self.table, known, scale=math.sqrt(self.width))
        projected = ops.scaled(ops.linear(x, self.projection), 1 / math.sqrt(self.hidden_size))
        return ops.scaled(ops.add(ops.rms_norm(projected, self.norm, self.eps), rows), 1 / math.sqrt(2))


@dataclass(frozen=True)
class Layer:
    attention_norm: Handle
    attention: Attention
    ffn_norm: Handle
    feed_forward: PerPosition
    own_input: OwnInput | None
    scale: float

    @staticmethod
    def read(numbers: Numbers, load: WeightLoader, index: int) -> Layer:
        config = replace(numbers.config, intermediate_size=numbers.ffn_widths[index])
        mixed = numbers.mixture
        return Layer(
            attention_norm=load.vector(f"blk.{index}.attn_norm.weight", config.hidden_size),
            attention=Attention.read(numbers, load, index),
            ffn_norm=load.vector(f"blk.{index}.ffn_norm.weight", config.hidden_size),
            feed_forward=FeedForward.read(config, TRAITS, load, index)
            if mixed is None
            else MixedFeedForward.read(mixed, config, load, index),
            own_input=OwnInput.read(numbers, load, index) if numbers.input_width else None,
            scale=float(load.host(f"blk.{index}.layer_output_scale.weight", 1)[0]),
        )


class Gemma4:
    """A `Model`. Its head is the embedding where the file has none of its own."""

    def __init__(self, numbers: Numbers, load: WeightLoader, context: int) -> None:
        config = numbers.config
        self.config, self.numbers = config, numbers
        self.context_length = min(context, config.context_length)
        self.vocabulary = config.vocabulary
        self.inset_width = config.hidden_size
        self.turns: tuple[Turn, ...] = ()
        self.embedding = load.matrix("token_embd.weight", config.vocabulary, config.hidden_size)
        self.inputs = Inputs(numbers, load) if numbers.input_width else None
        self.layers = tuple(Layer.read(numbers, load, index) for index in range(config.n_layers))
        stored = (layer.attention for layer in self.layers if layer.attention.stored is not None)
        self.caches: tuple[LayerSpec, ...] = tuple(attention.cache for attention in stored)
        self.norm = load.vector("output_norm.weight", config.hidden_size)
        tied = not load.has("output.weight")
        self.head = self.embedding if tied else head(config, load)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        self.tables = self._tables(load)

    def _tables(self, load: WeightLoader) -> dict[bool, Rotary]:
        """Of local layers, and of those that see all positions. These turn only a part of each head, by frequencies
        as if they turned all of it: the divisors in the file hold the rest still."""
        numbers, config = self.numbers, self.config
        near = Turn(inverse_frequencies(numbers.local_theta, numbers.local_rotary), "halves")
        tables = {True: near.table(self.context_length)} if any(numbers.local) else {}
        if not all(numbers.local):
            load.host("rope_freqs.weight", config.rotary_dim // 2)  # without it the whole head would turn
            tables[False] = file_turn(config, load, self.context_length, "halves").table(self.context_length)
        return tables

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
        eps, hidden_size, width = self.config.eps, self.config.hidden_size, self.numbers.input_width
        scale = math.sqrt(hidden_size)
        x = embedded(ops, lambda some: ops.embed(self.embedding, some, scale=scale), tokens, insets, hidden_size)
        inputs = None if self.inputs is None else self.inputs.of(ops, tokens, x)
        # Where layers have no inputs of their own, all rows of a picture see each other, but only in local layers
        # (Transformers, `create_masks_for_vision_model`; llama.cpp, `mtmd_decode_use_non_causal`, tells by the width).
        until = mutual(insets, start, len(tokens)) if self.inputs is None else None
        for index, layer in enumerate(self.layers):
            local = self.numbers.local[index]
            normed = ops.rms_norm(x, layer.attention_norm, eps)
            cache, ends = caches[layer.attention.slot], until if local else None
            x = layer.attention.add(ops, x, normed, self.tables[local], cache, start, ends)
            x = layer.feed_forward.add(ops, x, ops.rms_norm(x, layer.ffn_norm, eps))
            if layer.own_input is not None:
                x = layer.own_input.add(ops, x, ops.pick(inputs, 1, index * width, (index + 1) * width))
            x = ops.scaled(x, layer.scale)
        return ops.rms_norm(x, self.norm, eps)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.linear(hidden, self.head, softcap=self.numbers.logit_softcap)
