"""The vision tower of Qwen3-VL and Qwen3.5 (Qwen Team, arXiv:2511.21631; DeepStack: Meng et al., arXiv:2406.04334).

Constants are those of Transformers' `Qwen3VLVisionModel`; the file's own epsilon is that of the text model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.cancel import Cancel
from engine.errors import ModelFileError
from engine.formats.index import TensorIndex
from engine.kernels.ops import Handle, Ops, Rotary, Tensor
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.vision.config import MAX_PIXELS, PREFIX, VisionConfig, require_gelu
from engine.vision.encoder import FeedForward, FullAttention, LayerNorm, Linear
from engine.vision.images import Pixels
from engine.vision.patches import Patches, Picture
from engine.vision.positions import axial_rotary, grid_taps, interpolated, patch_places
from engine.vision.resize import NearOwnSize

NAME: Final = "qwen3vl_merger"
EPS: Final = 1e-6
THETA: Final = 10000.0
PIXELS: Final = (2**16, 2**24)
"""The least and the most of a picture, as published with the models; a file may have its own."""
PATCHES: Final = 4096
"""Of a picture, unless somebody asks for another number: 1024 × 1024 pixels in patches of 16, 1024 tokens."""


def build(index: TensorIndex, load: WeightLoader) -> Qwen3VL:
    metadata = Metadata(index.metadata)
    require_gelu(metadata)
    config = VisionConfig.read(metadata, merge=2, merge_key="spatial_merge_size")
    config.check_axial()
    tower = Qwen3VL(config, metadata.under(PREFIX), load)
    levels, key = [layer.merger is not None for layer in tower.layers], f"{PREFIX}.is_deepstack_layers"
    if index.metadata.get(key, levels) != levels:
        raise ModelFileError(
            f"The vision tower's {key} names other layers than the file has DeepStack mergers for; the file is "
            "incomplete, fetch it again."
        )
    return tower


@dataclass(frozen=True)
class Merger:
    """Block by block the patches of one token become its features. What DeepStack takes from a layer is normed when the
    patches are already one row, the last layer's before."""

    norm: LayerNorm
    first: Linear
    second: Linear
    merged_first: bool
    area: int

    @staticmethod
    def read(config: VisionConfig, load: WeightLoader, names: tuple[str, str, str], *, merged_first: bool) -> Merger:
        area = config.merge**2
        width = config.hidden_size * area
        return Merger(
            norm=LayerNorm.read(load, names[0], width if merged_first else config.hidden_size, EPS),
            first=Linear.read(load, names[1], width, width),
            second=Linear.read(load, names[2], config.text_size, width),
            merged_first=merged_first,
            area=area,
        )

    def run(self, ops: Ops, x: Tensor) -> Tensor:
        """[patches, hidden_size] → [tokens, text_size]."""
        if self.merged_first:
            merged = self.norm.run(ops, ops.folded(x, self.area))
        else:
            merged = ops.folded(self.norm.run(ops, x), self.area)
        return self.second.run(ops, ops.activate(self.first.run(ops, merged), "gelu_erf"))


@dataclass(frozen=True)
class Layer:
    norm: LayerNorm
    qkv: Linear
    output: Linear
    feed_forward: FeedForward
    merger: Merger | None

    @staticmethod
    def read(config: VisionConfig, load: WeightLoader, index: int) -> Layer:
        name, width = f"v.blk.{index}", config.hidden_size
        level = f"v.deepstack.{index}"
        names = f"{level}.norm", f"{level}.fc1", f"{level}.fc2"
        return Layer(
            norm=LayerNorm.read(load, f"{name}.ln1", width, EPS),
            qkv=Linear.read(load, f"{name}.attn_qkv", 3 * config.n_heads * config.head_dim, width),
            output=Linear.read(load, f"{name}.attn_out", width, config.n_heads * config.head_dim),
            feed_forward=FeedForward.read(load, name, width, config.intermediate_size, EPS),
            merger=Merger.read(config, load, names, merged_first=True) if load.has(f"{names[1]}.weight") else None,
        )

    def add(self, ops: Ops, x: Tensor, attention: FullAttention, rotary: Rotary, n_heads: int, patches: int) -> Tensor:
        qkv = self.qkv.run(ops, self.norm.run(ops, x))
        width = n_heads * rotary.cos.shape[1] * 2
        q, k, v = (ops.pick(qkv, 1, start, start + width) for start in (0, width, 2 * width))
        q, k = (ops.rotary(one, n_heads, rotary, 0) for one in (q, k))
        x = self.output.run(ops, attention.run(ops, q, k, v), x)
        return self.feed_forward.add(ops, x, patches)


class Qwen3VL:
    """A `Tower`. A row of its output is the features of a token, then what DeepStack adds to the first text layers.

    The two frames that a patch embedding looks at are one still picture twice: in a GGUF file each has a matrix of its
    own, in a checkpoint both lie in one.
    """

    name = NAME

    def __init__(self, config: VisionConfig, keys: Metadata, load: WeightLoader) -> None:
        self.config = config
        self.merge, self.hidden_size = config.merge, config.text_size
        apart = load.has("v.patch_embd.weight.1")
        frames = 1 if apart else 2
        columns = 3 * frames * config.patch_size**2
        self.embedding = Linear.read(load, "v.patch_embd", config.hidden_size, columns)
        self.second_frame: Handle | None = None
        if apart:
            self.second_frame = load.matrix("v.patch_embd.weight.1", config.hidden_size, columns)
        self.side = config.image_size // config.patch_size
        self.positions = load.matrix("v.position_embd.weight", self.side**2, config.hidden_size)
        self.layers = tuple(Layer.read(config, load, index) for index in range(config.n_layers))
        self.merger = Merger.read(config, load, ("v.post_ln", "mm.0", "mm.2"), merged_first=False)
        self.width = config.text_size * (1 + sum(layer.merger is not None for layer in self.layers))
        patches = Patches(config.patch_size, config.merge, config.mean, config.std, frames=frames, blockwise=True)
        least = keys.integer("image_min_pixels", high=MAX_PIXELS, default=PIXELS[0])
        most = keys.integer("image_max_pixels", high=MAX_PIXELS, default=PIXELS[1])
        self._pictures = NearOwnSize(patches, least, most)

    def prepare(self, image: Pixels, max_patches: int | None = None) -> Picture:
        return self._pictures.prepare(image, PATCHES if max_patches is None else max_patches)

    def encode(self, ops: Ops, picture: Picture, cancel: Cancel | None = None) -> Tensor:
        config, n = self.config, len(picture.pixels)
        pixels = ops.tensor(picture.pixels)
        x = self.embedding.run(ops, pixels)
        if self.second_frame is not None:
            x = ops.linear(pixels, self.second_frame, residual=x)
        places = patch_places(picture.grid, config.merge)
        learned = ops.host(ops.embed(self.positions, range(self.side**2)))
        x = ops.add(x, ops.tensor(interpolated(learned, *grid_taps(places, picture.grid, self.side))))
        rotary = Rotary(*axial_rotary(places, config.head_dim, THETA), "halves")
        attention = FullAttention(ops, n, config.n_heads, config.head_dim, 1 / math.sqrt(config.head_dim), cancel)
        levels = []
        for layer in self.layers:
            if cancel is not None:
                cancel.check()
            x = layer.add(ops, x, attention, rotary, config.n_heads, n)
            if layer.merger is not None:
                levels.append(layer.merger.run(ops, x))
        features = self.merger.run(ops, x)
        for level in levels:
            features = ops.spliced(features, level, 1)
        return features
