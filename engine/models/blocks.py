"""The blocks that decoders are made of: each reads its weights of one layer, runs on normed input and adds itself.

Tensor names are those of the GGUF specification.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError, UnsupportedModelError
from engine.kernels.ops import (
    Activation,
    AttentionSpec,
    CacheSpec,
    Handle,
    InputRounding,
    LayerCache,
    Ops,
    Rotary,
    Tensor,
)
from engine.models.config import Config
from engine.models.model import WeightLoader
from engine.models.traits import Traits


def projection(
    load: WeightLoader, index: int, name: str, rows: int, columns: int, activations: InputRounding = "blocks"
) -> Handle:
    """The matrix `name` of layer `index`, with the scale that the file may have for it."""
    name = f"blk.{index}.{name}"
    return load.matrix(
        f"{name}.weight", rows, columns, activations=activations, scale=matrix_scale(load, f"{name}.scale")
    )


def fused(load: WeightLoader, index: int, name: str, rows: Sequence[int], columns: int) -> list[Handle]:
    """Several projections, of so many rows each, that lie one after the other in the matrix `name` of layer `index`."""
    name = f"blk.{index}.{name}"
    refuse(load, f"{name}.bias", "a bias for fused projections")
    return load.parts(f"{name}.weight", rows, columns, scale=matrix_scale(load, f"{name}.scale"))


def matrix_scale(load: WeightLoader, name: str) -> float | None:
    """What the products of a whole matrix are multiplied by, as llama.cpp does (`build_lora_mm`); `None` for nothing.

    Raises ModelFileError for a number that leaves nothing of them.
    """
    if not load.has(name):
        return None
    return float(_usable(name, load.host(name, 1))[0])


def expert_scales(load: WeightLoader, name: str, n_experts: int) -> npt.NDArray[np.float32] | None:
    """The same for each of a mixture's experts, float32 [n_experts]."""
    return _usable(name, load.host(name, n_experts)) if load.has(name) else None


def _usable(name: str, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    for scale in scales[~np.isfinite(scales) | (scales == 0)]:
        raise ModelFileError(f"The model file's {name} is {scale}; the file is damaged, fetch it again.")
    return scales


def post_norm(config: Config, traits: Traits, load: WeightLoader, index: int, name: str) -> Handle | None:
    """The norm `name` after a block of layer `index`, in families that have one."""
    return load.vector(f"blk.{index}.{name}.weight", config.hidden_size) if traits.post_norms else None


def sub_norm(traits: Traits, load: WeightLoader, index: int, name: str, width: int) -> Handle | None:
    """The norm `name` before the last projection of a block of layer `index`, in families that have one."""
    return load.vector(f"blk.{index}.{name}.weight", width) if traits.sub_norms else None


def refuse(load: WeightLoader, name: str, meaning: str) -> None:
    """Raises UnsupportedModelError for a file with this tensor, which would be left out in silence otherwise."""
    if load.has(name):
        raise UnsupportedModelError(f"The model has {meaning} ({name}), which this engine does not run yet.")


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention with rotary positions. A bias or a norm is `None` where the model has none."""

    spec: AttentionSpec
    cache: CacheSpec
    eps: float
    q: Handle
    k: Handle
    v: Handle
    q_bias: Handle | None
    k_bias: Handle | None
    v_bias: Handle | None
    q_norm: Handle | None
    k_norm: Handle | None
    sinks: Handle | None
    sub_norm: Handle | None
    output: Handle
    output_bias: Handle | None
    post_norm: Handle | None
    output_gates: bool

    @staticmethod
    def read(config: Config, traits: Traits, load: WeightLoader, index: int) -> Attention:
        """The block of layer `index`."""

        def bias(name: str, width: int, *, needed: bool = False) -> Handle | None:
            name = f"blk.{index}.{name}.bias"
            return load.vector(name, width) if needed or load.has(name) else None

        def head_norm(name: str) -> Handle | None:
            return load.vector(f"blk.{index}.{name}.weight", config.key_dim) if traits.head_norms else None

        queries, outputs = config.n_heads * config.key_dim, config.n_heads * config.value_dim
        keys, values = config.n_kv_heads * config.key_dim, config.n_kv_heads * config.value_dim
        if traits.fused:
            q, k, v = fused(load, index, "attn_qkv", (queries, keys, values), config.hidden_size)
        else:
            refuse(load, f"blk.{index}.attn_qkv.weight", "its queries, keys and values in one matrix")
            queries *= 2 if traits.output_gates else 1
            q = projection(load, index, "attn_q", queries, config.hidden_size, traits.activations)
            k = projection(load, index, "attn_k", keys, config.hidden_size, traits.activations)
            v = projection(load, index, "attn_v", values, config.hidden_size, traits.activations)
        scale = traits.attention_scale or 1 / math.sqrt(config.key_dim)
        return Attention(
            spec=AttentionSpec(config.n_heads, scale, traits.sight(index).window, traits.attention_softcap),
            cache=CacheSpec(config.n_kv_heads, config.key_dim, config.value_dim),
            eps=config.eps,
            q=q,
            k=k,
            v=v,
            q_bias=bias("attn_q", queries, needed=traits.biased),
            k_bias=bias("attn_k", keys, needed=traits.biased),
            v_bias=bias("attn_v", values, needed=traits.biased),
            q_norm=head_norm("attn_q_norm"),
            k_norm=head_norm("attn_k_norm"),
            sinks=load.vector(f"blk.{index}.attn_sinks.weight", config.n_heads) if traits.sinks else None,
            sub_norm=sub_norm(traits, load, index, "attn_sub_norm", outputs),
            output=projection(load, index, "attn_output", config.hidden_size, outputs, traits.activations),
            output_bias=bias("attn_output", config.hidden_size, needed=traits.biased_throughout),
            post_norm=post_norm(config, traits, load, index, "post_attention_norm"),
            output_gates=traits.output_gates,
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
        q, k, v = self._project(ops, normed)
        gates: Tensor = None
        if self.output_gates:
            heads, width = self.spec.n_heads, self.cache.key_dim
            q, gates = (ops.pick(q, heads, at, at + width) for at in (0, width))
        if self.q_norm is not None:
            q = ops.rms_norm(q, self.q_norm, self.eps)
        if self.k_norm is not None:
            k = ops.rms_norm(k, self.k_norm, self.eps)
        if rotary is not None:
            q = ops.rotary(q, self.spec.n_heads, rotary, start)
            k = ops.rotary(k, self.cache.n_kv_heads, rotary, start)
        attended = ops.attention(q, k, v, cache, self.spec, start, self.sinks, until)
        if self.output_gates:
            attended = ops.gate(gates, attended, "sigmoid")
        if self.sub_norm is not None:
            attended = ops.rms_norm(attended, self.sub_norm, self.eps)
        if self.post_norm is None:
            return ops.linear(attended, self.output, bias=self.output_bias, residual=x)
        made = ops.linear(attended, self.output, bias=self.output_bias)
        return ops.rms_norm(made, self.post_norm, self.eps, residual=x)

    def _project(self, ops: Ops, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.q_bias is None and self.k_bias is None and self.v_bias is None:
            q, k, v = ops.linears(normed, (self.q, self.k, self.v))
            return q, k, v
        return (
            ops.linear(normed, self.q, bias=self.q_bias),
            ops.linear(normed, self.k, bias=self.k_bias),
            ops.linear(normed, self.v, bias=self.v_bias),
        )


@dataclass(frozen=True)
class FeedForward:
    """The gated feed-forward (Shazeer, GLU variants, arXiv:2002.05202)."""

    activation: Activation
    eps: float
    gate: Handle
    up: Handle
    sub_norm: Handle | None
    down: Handle
    post_norm: Handle | None

    @staticmethod
    def read(config: Config, traits: Traits, load: WeightLoader, index: int) -> FeedForward:
        """The block of layer `index`."""
        width = config.intermediate_size
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            refuse(load, f"blk.{index}.{name}.bias", "a bias in its feed-forward layers")
        if traits.fused:
            gate, up = fused(load, index, "ffn_up", (width, width), config.hidden_size)
        else:
            gate = projection(load, index, "ffn_gate", width, config.hidden_size, traits.activations)
            up = projection(load, index, "ffn_up", width, config.hidden_size, traits.activations)
        return FeedForward(
            activation=traits.activation,
            eps=config.eps,
            gate=gate,
            up=up,
            sub_norm=sub_norm(traits, load, index, "ffn_sub_norm", width),
            down=projection(load, index, "ffn_down", config.hidden_size, width, traits.activations),
            post_norm=post_norm(config, traits, load, index, "post_ffw_norm"),
        )

    def add(self, ops: Ops, x: Tensor, normed: Tensor) -> Tensor:
        """x + feed-forward of the rows `normed`: → [n, hidden_size]."""
        gated = ops.gated(normed, self.gate, self.up, self.activation)
        if self.sub_norm is not None:
            gated = ops.rms_norm(gated, self.sub_norm, self.eps)
        if self.post_norm is None:
            return ops.linear(gated, self.down, residual=x)
        return ops.rms_norm(ops.linear(gated, self.down), self.post_norm, self.eps, residual=x)
