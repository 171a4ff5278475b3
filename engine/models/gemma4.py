"""The text part of the `gemma4` architecture of GGUF files: Gemma 4, dense, with or without embeddings for each layer.

Gemma Team, Gemma 4 (2026). Keys, tensors and defaults are those of llama.cpp (`llama_model_gemma4`), the mathematics
those of Transformers (`Gemma4TextModel`). Norms multiply with their weights as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from engine.errors import ModelFileError
from engine.kernels.ops import AttentionSpec, CacheSpec, Handle, LayerCache, LayerSpec, Ops, Rotary, Tensor
from engine.models.blocks import FeedForward, projection, refuse
from engine.models.config import MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, Config
from engine.models.gemma2 import MAX_SOFTCAP
from engine.models.insets import embedded, mutual
from engine.models.metadata import Metadata
from engine.models.model import OWN, Inset, Tables, WeightLoader
from engine.models.rotary import Turn, inverse_frequencies
from engine.models.scaling import MAX_CONTEXT
from engine.models.traits import Sight, Traits, file_turn, same_sight

PADDING: Final = 0
"""The token of every Gemma vocabulary that fills gaps."""
TRAITS: Final = Traits(same_sight(Sight(None)), post_norms=True, activation="gelu_tanh")
"""Of the feed-forward layers, which positions do not concern."""


def build(metadata: Metadata, load: WeightLoader, context: int) -> Gemma4:
    return Gemma4(Numbers.read(metadata), load, context)


@dataclass(frozen=True)
class Numbers:
    """What the keys say. `config` holds what all layers share, and the head of the layers that see all positions.

    `local`, `n_kv_heads` and `ffn_widths` are told layer by layer. The last `borrowing` layers store no keys and
    values: each reads those of the last layer before them that sees as far. `input_width` is that of a layer's own
    input, 0 where layers have none.
    """

    config: Config
    local: list[bool]
    n_kv_heads: list[int]
    ffn_widths: list[int]
    local_dim: int
    local_rotary: int
    local_theta: float
    window: int
    borrowing: int
    input_width: int
    logit_softcap: float | None

    @staticmethod
    def read(metadata: Metadata) -> Numbers:
        """Raises ModelFileError for what cannot be true, UnsupportedModelError for what is not run."""
        keys = metadata.under("gemma4")
        n_layers = keys.integer("block_count", high=MAX_LAYERS)
        n_heads = keys.integer("attention.head_count", high=MAX_HEADS)
        n_kv_heads = keys.integers("attention.head_count_kv", n_layers, high=n_heads, default=n_heads)
        ffn_widths = keys.integers("feed_forward_length", n_layers, high=MAX_WIDTH)
        shared = metadata
        for key, values in (("attention.head_count_kv", n_kv_heads), ("feed_forward_length", ffn_widths)):
            shared = shared.replaced(keys.whole(key), values[0])
        config = Config.read(shared, "gemma4")
        local_dim = keys.integer("attention.key_length_swa", high=MAX_HEAD_DIM)
        local_values = keys.integer("attention.value_length_swa", high=MAX_HEAD_DIM)
        for key, width, own in (
            ("attention.value_length", config.value_dim, config.key_dim),
            ("attention.value_length_swa", local_values, local_dim),
        ):
            if width != own:
                raise _wrong(keys.whole(key), f"{width}, but its keys are {own} wide")
        for heads in n_kv_heads:
            if n_heads % heads:
                raise _wrong(
                    keys.whole("attention.head_count_kv"), f"{heads}, which {n_heads} query heads cannot share"
                )
        local_rotary = keys.integer("rope.dimension_count_swa", low=2, high=local_dim, default=local_dim)
        if local_rotary % 2:
            raise _wrong(keys.whole("rope.dimension_count_swa"), f"{local_rotary}, but elements turn in pairs")
        local = keys.flags("attention.sliding_window_pattern", n_layers)
        borrowing = keys.integer("attention.shared_kv_layers", low=0, high=n_layers, default=0)
        if set(local[: n_layers - borrowing]) != set(local):
            raise _wrong(keys.whole("attention.shared_kv_layers"), f"{borrowing}, which leaves nothing to be shared")
        capped = "final_logit_softcapping" in keys
        return Numbers(
            config=config,
            local=local,
            n_kv_heads=n_kv_heads,
            ffn_widths=ffn_widths,
            local_dim=local_dim,
            local_rotary=local_rotary,
            local_theta=keys.number("rope.freq_base_swa", low=1.001, high=1e15, default=config.rope_theta),
            window=keys.integer("attention.sliding_window", high=MAX_CONTEXT),
            borrowing=borrowing,
            input_width=keys.integer("embedding_length_per_layer_input", low=0, high=MAX_WIDTH),
            logit_softcap=keys.number("final_logit_softcapping", low=1e-3, high=MAX_SOFTCAP) if capped else None,
        )

    def lender(self, index: int) -> int:
        """The layer whose keys and values layer `index` reads: its own, or another's."""
        first = self.config.n_layers - self.borrowing
        return index if index < first else max(at for at in range(first) if self.local[at] == self.local[index])


def _wrong(key: str, problem: str) -> ModelFileError:
    return ModelFileError(f"The model file's {key} is {problem}; the file is damaged, fetch it again.")


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
    """`slot` is the place of its cache among the model's; `stored` is `None` where another layer fills it."""

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
    feed_forward: FeedForward
    own_input: OwnInput | None
    scale: float

    @staticmethod
    def read(numbers: Numbers, load: WeightLoader, index: int) -> Layer:
        config = replace(numbers.config, intermediate_size=numbers.ffn_widths[index])
        return Layer(
            attention_norm=load.vector(f"blk.{index}.attn_norm.weight", config.hidden_size),
            attention=Attention.read(numbers, load, index),
            ffn_norm=load.vector(f"blk.{index}.ffn_norm.weight", config.hidden_size),
            feed_forward=FeedForward.read(config, TRAITS, load, index),
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
        self.head = self.embedding if tied else load.matrix("output.weight", config.vocabulary, config.hidden_size)
        # Made last: the sizes in the metadata are then vouched for by the weights.
        self.tables = self._tables(load)

    def _tables(self, load: WeightLoader) -> dict[bool, Rotary]:
        """Of local layers, and of those that see all positions. These turn only a part of each head, by frequencies
        as if they turned all of it: the divisors in the file hold the rest still."""
        numbers, config = self.numbers, self.config
        near = Turn(inverse_frequencies(numbers.local_theta, numbers.local_rotary), "halves")
        tables = {True: near.table(self.context_length)} if any(numbers.local) else {}
        if not all(numbers.local):
            load.host("rope_freqs.weight", config.rotary_dim // 2)
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
