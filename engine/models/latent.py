"""Attention over latents (DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434, section 2.1), in its absorbed form.

A position's keys and values of all heads are matrices times one latent. So what is cached is the latent, beside a part
of the key that turns and is the same for all heads; each query is brought to the latents by its head's key matrix, and
what it has gathered of them becomes a value by its head's value matrix. Tensor names are those of the GGUF
specification. llama.cpp's converter splits these matrices and transposes those of the keys
(`DeepseekV2Model.modify_tensors`); it once left them as they are, beside keys of other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ModelFileError
from engine.kernels.ops import AttentionSpec, CacheSpec, Handle, LayerCache, Ops, Rotary, Tensor
from engine.models.blocks import projection, refuse
from engine.models.config import MAX_HEAD_DIM, MAX_WIDTH, Config
from engine.models.decoder import ReadMixer
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Traits


@dataclass(frozen=True)
class Latent:
    """The widths of a latent, of a head's query that does not turn and of that which does, of a head's value, and of
    the queries' own latent, 0 where they have none. `apart`: the file has the matrices of keys and of values apart."""

    rank: int
    still: int
    turning: int
    value: int
    query_rank: int
    apart: bool

    @staticmethod
    def read(keys: Metadata, config: Config) -> Latent:
        """From the keys of an architecture. Raises ModelFileError for what cannot be true."""
        apart = "attention.key_length_mla" in keys
        key, value = (f"attention.{name}_length{'_mla' if apart else ''}" for name in ("key", "value"))
        whole = keys.integer(key, high=MAX_HEAD_DIM)
        if whole <= config.rotary_dim:
            raise ModelFileError(
                f"The model file's {keys.whole(key)} {whole} leaves nothing beside the {config.rotary_dim} elements "
                "that turn; the file is damaged, fetch it again."
            )
        return Latent(
            rank=keys.integer("attention.kv_lora_rank", high=MAX_HEAD_DIM),
            still=whole - config.rotary_dim,
            turning=config.rotary_dim,
            value=keys.integer(value, high=MAX_HEAD_DIM),
            query_rank=keys.integer("attention.q_lora_rank", low=0, high=MAX_WIDTH, default=0),
            apart=apart,
        )

    @property
    def key(self) -> int:
        """The width of what is cached."""
        return self.rank + self.turning

    @property
    def query(self) -> int:
        """The width of a head's query."""
        return self.still + self.turning

    @property
    def mixer(self) -> ReadMixer:
        """For `Decoder`: the block of a layer."""
        return lambda config, traits, load, index: LatentAttention.read(self, config, traits, load, index)


@dataclass(frozen=True)
class LatentAttention:
    """`q` makes queries of the rows or, with `q_norm`, of the normed latents that `q_latent` makes of them."""

    latent: Latent
    spec: AttentionSpec
    cache: CacheSpec
    eps: float
    q_latent: Handle | None
    q_norm: Handle | None
    q: Handle
    kv_latent: Handle
    kv_norm: Handle
    k: Handle
    v: Handle
    output: Handle

    @staticmethod
    def read(latent: Latent, config: Config, traits: Traits, load: WeightLoader, index: int) -> LatentAttention:
        """The block of layer `index`."""
        heads, hidden_size = config.n_heads, config.hidden_size

        def each_head(name: str, rows: Sequence[int], columns: int) -> list[Handle]:
            refuse(load, f"blk.{index}.{name}.scale", "a scale for a whole matrix")
            return load.experts(f"blk.{index}.{name}.weight", heads, rows, columns)

        if latent.apart:
            (k,) = each_head("attn_k_b", (latent.rank,), latent.still)
            (v,) = each_head("attn_v_b", (latent.value,), latent.rank)
        else:
            k, v = each_head("attn_kv_b", (latent.still, latent.value), latent.rank)
        q_latent = q_norm = None
        if latent.query_rank:
            q_latent = projection(load, index, "attn_q_a", latent.query_rank, hidden_size)
            q_norm = load.vector(f"blk.{index}.attn_q_a_norm.weight", latent.query_rank)
            q = projection(load, index, "attn_q_b", heads * latent.query, latent.query_rank)
        else:
            q = projection(load, index, "attn_q", heads * latent.query, hidden_size)
        scale = traits.attention_scale or 1 / math.sqrt(latent.query)
        return LatentAttention(
            latent=latent,
            spec=AttentionSpec(heads, scale, traits.sight(index).window, traits.attention_softcap),
            cache=CacheSpec(1, latent.key, latent.rank, latent=True),
            eps=config.eps,
            q_latent=q_latent,
            q_norm=q_norm,
            q=q,
            kv_latent=projection(load, index, "attn_kv_a_mqa", latent.key, hidden_size),
            kv_norm=load.vector(f"blk.{index}.attn_kv_a_norm.weight", latent.rank),
            k=k,
            v=v,
            output=projection(load, index, "attn_output", hidden_size, heads * latent.value),
        )

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
        """x + attention of the rows `normed` at positions `start …`: → [n, hidden_size]."""
        heads, latent = self.spec.n_heads, self.latent
        q, kv = self._project(ops, normed)
        turning = ops.pick(q, heads, latent.still, latent.query), ops.pick(kv, 1, latent.rank, latent.key)
        if rotary is not None:
            turning = ops.rotary(turning[0], heads, rotary, start), ops.rotary(turning[1], 1, rotary, start)
        absorbed = ops.head_linears(ops.pick(q, heads, 0, latent.still), self.k, transposed=not latent.apart)
        normed_latent = ops.rms_norm(ops.pick(kv, 1, 0, latent.rank), self.kv_norm, self.eps)
        queries = ops.spliced(absorbed, turning[0], heads)
        keys = ops.spliced(normed_latent, turning[1], 1)
        attended = ops.attention(queries, keys, None, cache, self.spec, start, until=until)
        return ops.linear(ops.head_linears(attended, self.v), self.output, residual=x)

    def _project(self, ops: Ops, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [n, n_heads · query], and latents not yet normed beside what turns [n, key]."""
        if self.q_latent is None or self.q_norm is None:
            q, kv = ops.linears(normed, (self.q, self.kv_latent))
            return q, kv
        q, kv = ops.linears(normed, (self.q_latent, self.kv_latent))
        return ops.linear(ops.rms_norm(q, self.q_norm, self.eps), self.q), kv
