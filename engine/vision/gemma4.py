"""The vision tower of Gemma 4: pictures of their own shape, positions by column and row, normed queries, keys, values.

Source of the formulas: Transformers, `Gemma4VisionModel` and `Gemma4MultimodalEmbedder`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.cancel import Cancel
from engine.errors import ImageError, ModelFileError
from engine.formats.index import TensorIndex
from engine.kernels.ops import Handle, Ops, Rotary, Tensor
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.vision.config import VisionConfig
from engine.vision.encoder import F32, FullAttention, in_pieces, pooled
from engine.vision.images import Pixels
from engine.vision.patches import MAX_PATCHES, Patches, Picture
from engine.vision.positions import axial_rotary, patch_places
from engine.vision.resize import TokenBudget

NAME: Final = "gemma4v"
THETA: Final = 100.0
POSITIONS: Final = "v.position_embd.weight"
FINITE: Final = float(np.finfo(np.float32).max)


def build(index: TensorIndex, load: WeightLoader) -> Gemma4:
    config = VisionConfig.read(Metadata(index.metadata), merge=3)
    config.check_axial()
    return Gemma4(config, index, load)


@dataclass(frozen=True)
class Clipped:
    """A linear layer without a bias, whose input and output are kept within bounds where the file has them."""

    weight: Handle
    inputs: tuple[float, float]
    outputs: tuple[float, float]

    @staticmethod
    def read(load: WeightLoader, name: str, rows: int, columns: int) -> Clipped:
        return Clipped(
            load.matrix(f"{name}.weight", rows, columns),
            inputs=(_bound(load, f"{name}.input_min", -math.inf), _bound(load, f"{name}.input_max", math.inf)),
            outputs=(_bound(load, f"{name}.output_min", -math.inf), _bound(load, f"{name}.output_max", math.inf)),
        )

    def run(self, ops: Ops, x: Tensor) -> Tensor:
        return _kept(ops, ops.linear(_kept(ops, x, self.inputs), self.weight), self.outputs)


@dataclass(frozen=True)
class Layer:
    norm: Handle
    q: Clipped
    k: Clipped
    v: Clipped
    q_norm: Handle
    k_norm: Handle
    output: Clipped
    output_norm: Handle
    ffn_norm: Handle
    gate: Clipped
    up: Clipped
    down: Clipped
    down_norm: Handle
    config: VisionConfig

    @staticmethod
    def read(config: VisionConfig, load: WeightLoader, index: int) -> Layer:
        name, width, inner = f"v.blk.{index}", config.hidden_size, config.intermediate_size
        heads = config.n_heads * config.head_dim
        return Layer(
            norm=load.vector(f"{name}.ln1.weight", width),
            q=Clipped.read(load, f"{name}.attn_q", heads, width),
            k=Clipped.read(load, f"{name}.attn_k", heads, width),
            v=Clipped.read(load, f"{name}.attn_v", heads, width),
            q_norm=load.vector(f"{name}.attn_q_norm.weight", config.head_dim),
            k_norm=load.vector(f"{name}.attn_k_norm.weight", config.head_dim),
            output=Clipped.read(load, f"{name}.attn_out", width, heads),
            output_norm=load.vector(f"{name}.attn_post_norm.weight", width),
            ffn_norm=load.vector(f"{name}.ln2.weight", width),
            gate=Clipped.read(load, f"{name}.ffn_gate", inner, width),
            up=Clipped.read(load, f"{name}.ffn_up", inner, width),
            down=Clipped.read(load, f"{name}.ffn_down", width, inner),
            down_norm=load.vector(f"{name}.ffn_post_norm.weight", width),
            config=config,
        )

    def add(self, ops: Ops, x: Tensor, attention: FullAttention, by: tuple[Rotary, Rotary], patches: int) -> Tensor:
        """`by` turns the first half of each head by the patch's column, the second by its row."""
        eps, heads = self.config.eps, self.config.n_heads
        normed = ops.rms_norm(x, self.norm, eps)
        q, k, v = (projection.run(ops, normed) for projection in (self.q, self.k, self.v))
        q = _turned(ops, ops.rms_norm(q, self.q_norm, eps), heads, by)
        k = _turned(ops, ops.rms_norm(k, self.k_norm, eps), heads, by)
        v = ops.rms_norm(v, _ones(ops, self.config.head_dim), eps)
        made = self.output.run(ops, attention.run(ops, q, k, v))
        x = ops.rms_norm(made, self.output_norm, eps, residual=x)
        return in_pieces(ops, x, patches, lambda rows: self._feed_forward(ops, rows))

    def _feed_forward(self, ops: Ops, x: Tensor) -> Tensor:
        normed = ops.rms_norm(x, self.ffn_norm, self.config.eps)
        gated = ops.gate(self.gate.run(ops, normed), self.up.run(ops, normed), "gelu_tanh")
        return ops.rms_norm(self.down.run(ops, gated), self.down_norm, self.config.eps, residual=x)


class Gemma4:
    """A `Tower`."""

    name = NAME

    def __init__(self, config: VisionConfig, index: TensorIndex, load: WeightLoader) -> None:
        self.config = config
        self.merge, self.hidden_size, self.width = config.merge, config.text_size, config.text_size
        # A key of our own, for the patches of a checkpoint.
        last = Metadata(index.metadata).flag("clip.vision.channels_last", default=False)
        self._pictures = TokenBudget(Patches(config.patch_size, config.merge, *_centred(config), channels_last=last))
        self.embedding = load.matrix("v.patch_embd.weight", config.hidden_size, 3 * config.patch_size**2)
        rows = math.prod(index.tensors[POSITIONS].shape[:-1]) if POSITIONS in index.tensors else 2
        if rows % 2:
            raise ModelFileError(
                f"The vision tower's {POSITIONS} has {rows} rows, where it needs as many for columns as for rows; the "
                "file is damaged, fetch it again."
            )
        self.positions = load.matrix(POSITIONS, rows, config.hidden_size)
        self.extent = rows // 2
        self.layers = tuple(Layer.read(config, load, layer) for layer in range(config.n_layers))
        self.standard = None
        if load.has("v.std_bias"):
            self.standard = tuple(load.host(f"v.std_{part}", config.hidden_size) for part in ("bias", "scale"))
        self.projection = Clipped.read(load, "mm.input_projection", config.text_size, config.hidden_size)

    def prepare(self, image: Pixels, max_patches: int | None = None) -> Picture:
        picture = self._pictures.prepare(image, MAX_PATCHES if max_patches is None else max_patches)
        if max(picture.grid) > self.extent:
            raise ImageError(
                f"It has {max(picture.grid)} patches along a side, but the vision tower knows {self.extent} positions: "
                "crop it."
            )
        return picture

    def encode(self, ops: Ops, picture: Picture, cancel: Cancel | None = None) -> Tensor:
        config, n = self.config, len(picture.pixels)
        places = patch_places(picture.grid)
        row, column = places.T
        learned = ops.add(
            ops.embed(self.positions, column.tolist()), ops.embed(self.positions, (self.extent + row).tolist())
        )
        x = ops.linear(ops.tensor(picture.pixels), self.embedding, residual=learned)
        by = _turns(axial_rotary(places, config.head_dim, THETA))
        attention = FullAttention(ops, n, config.n_heads, config.head_dim, 1.0, cancel)
        for layer in self.layers:
            if cancel is not None:
                cancel.check()
            x = layer.add(ops, x, attention, by, n)
        tokens = pooled(ops.host(x), picture.grid, self.merge) * np.float32(math.sqrt(config.hidden_size))
        if self.standard is not None:
            tokens = (tokens - self.standard[0]) * self.standard[1]
        normed = ops.rms_norm(ops.tensor(tokens), _ones(ops, config.hidden_size), config.eps)
        return self.projection.run(ops, normed)


def _centred(config: VisionConfig) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """The mean and the deviation of colours when 2x - 1 follows, with which the tower itself begins."""
    red, green, blue = (mean + std / 2 for mean, std in zip(config.mean, config.std, strict=True))
    return (red, green, blue), (config.std[0] / 2, config.std[1] / 2, config.std[2] / 2)


def _turns(tables: tuple[F32, F32]) -> tuple[Rotary, Rotary]:
    """`axial_rotary`'s tables apart: those of the columns, then those of the rows."""
    cos, sin = ([np.ascontiguousarray(half) for half in np.split(table, 2, axis=1)] for table in tables)
    return Rotary(cos[1], sin[1], "halves"), Rotary(cos[0], sin[0], "halves")


def _turned(ops: Ops, x: Tensor, heads: int, by: tuple[Rotary, Rotary]) -> Tensor:
    half = 2 * by[0].cos.shape[1]
    first = ops.rotary(ops.pick(x, heads, 0, half), heads, by[0], 0)
    second = ops.rotary(ops.pick(x, heads, half, 2 * half), heads, by[1], 0)
    return ops.spliced(first, second, heads)


def _ones(ops: Ops, width: int) -> Handle:
    """The weights of a norm that has none."""
    return ops.vector(np.ones(width, np.float32))


def _bound(load: WeightLoader, name: str, default: float) -> float:
    if not load.has(name):
        return default
    value = float(load.host(name, 1)[0])
    if math.isnan(value):
        raise ModelFileError(f"The vision tower's {name} is no number; the file is damaged, fetch it again.")
    return value


def _kept(ops: Ops, x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """x within the bounds, NaN as it is."""
    if bounds[0] <= -FINITE and bounds[1] >= FINITE:
        return x
    return ops.tensor(np.clip(ops.host(x), np.float32(bounds[0]), np.float32(bounds[1])))
