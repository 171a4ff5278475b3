"""SigLIP (Zhai et al., arXiv:2303.15343), the encoder of Gemma 3 and Idefics3: squares of a size, learned positions.

Source of the formulas: Transformers, `SiglipVisionTransformer`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.cancel import Cancel
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.models.model import WeightLoader
from engine.vision.config import VisionConfig
from engine.vision.encoder import FeedForward, FullAttention, LayerNorm, Linear
from engine.vision.patches import Picture
from engine.vision.positions import patch_places


@dataclass(frozen=True)
class Layer:
    norm: LayerNorm
    q: Linear
    k: Linear
    v: Linear
    output: Linear
    feed_forward: FeedForward

    @staticmethod
    def read(config: VisionConfig, load: WeightLoader, index: int, names: tuple[str, str]) -> Layer:
        name, width, heads = f"v.blk.{index}", config.hidden_size, config.n_heads * config.head_dim
        return Layer(
            norm=LayerNorm.read(load, f"{name}.ln1", width, config.eps),
            q=Linear.read(load, f"{name}.attn_q", heads, width),
            k=Linear.read(load, f"{name}.attn_k", heads, width),
            v=Linear.read(load, f"{name}.attn_v", heads, width),
            output=Linear.read(load, f"{name}.attn_out", width, heads),
            feed_forward=FeedForward.read(load, name, width, config.intermediate_size, config.eps, names),
        )

    def add(self, ops: Ops, x: Tensor, attention: FullAttention, patches: int) -> Tensor:
        normed = self.norm.run(ops, x)
        q, k, v = (projection.run(ops, normed) for projection in (self.q, self.k, self.v))
        x = self.output.run(ops, attention.run(ops, q, k, v), x)
        return self.feed_forward.add(ops, x, patches)


class Siglip:
    """The encoder without its pooling head: pictures of `image_size` on each side → [patches, hidden_size], normed.

    Patches come row by row, or with `block` as `patch_places` has them.
    """

    def __init__(self, config: VisionConfig, index: TensorIndex, load: WeightLoader, block: int = 1) -> None:
        self.config, self._block = config, block
        self.embedding = Linear.read(load, "v.patch_embd", config.hidden_size, 3 * config.patch_size**2)
        self.patches = (config.image_size // config.patch_size) ** 2
        self.positions = load.matrix("v.position_embd.weight", self.patches, config.hidden_size)
        names = _feed_forward_names(config, index)
        self.layers = tuple(Layer.read(config, load, layer, names) for layer in range(config.n_layers))
        self.norm = LayerNorm.read(load, "v.post_ln", config.hidden_size, config.eps)

    def run(self, ops: Ops, picture: Picture, cancel: Cancel | None) -> Tensor:
        config, n = self.config, self.patches
        row, column = patch_places(picture.grid, self._block).T
        learned = ops.embed(self.positions, (row * picture.grid[1] + column).tolist())
        x = self.embedding.run(ops, ops.tensor(picture.pixels), learned)
        attention = FullAttention(ops, n, config.n_heads, config.head_dim, 1 / math.sqrt(config.head_dim), cancel)
        for layer in self.layers:
            if cancel is not None:
                cancel.check()
            x = layer.add(ops, x, attention, n)
        return self.norm.run(ops, x)


def _feed_forward_names(config: VisionConfig, index: TensorIndex) -> tuple[str, str]:
    """The names of a feed-forward's two matrices: in files of llama.cpp's first converters each has the other's."""
    down = index.tensors.get("v.blk.0.ffn_down.weight")
    inner, width = config.intermediate_size, config.hidden_size
    changed_places = down is not None and down.shape == (inner, width) and inner != width
    return ("ffn_down", "ffn_up") if changed_places else ("ffn_up", "ffn_down")
