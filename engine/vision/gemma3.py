"""The pictures of Gemma 3 (Gemma Team, arXiv:2503.19786): SigLIP, pooled to 16 × 16 tokens, normed and projected.

Source of the formulas: Transformers, `Gemma3MultiModalProjector`. llama.cpp's converter has added the one that Gemma's
norm adds to its weights.
"""

from __future__ import annotations

from typing import Final

from engine.cancel import Cancel
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.vision.config import VisionConfig, require_gelu
from engine.vision.encoder import pooled
from engine.vision.images import Pixels
from engine.vision.patches import Patches, Picture
from engine.vision.resize import Square
from engine.vision.siglip import Siglip

NAME: Final = "gemma3"


def build(index: TensorIndex, load: WeightLoader) -> Gemma3:
    metadata = Metadata(index.metadata)
    require_gelu(metadata)
    return Gemma3(VisionConfig.read(metadata, merge=4), index, load)


class Gemma3:
    """A `Tower`. Every picture becomes a square of the same size, whatever `max_patches` is."""

    name = NAME

    def __init__(self, config: VisionConfig, index: TensorIndex, load: WeightLoader) -> None:
        patches = Patches(config.patch_size, config.merge, config.mean, config.std)
        self._pictures = Square(patches, config.image_size)
        self.merge, self.hidden_size, self.width = config.merge, config.text_size, config.text_size
        self.encoder = Siglip(config, index, load)
        self.norm = load.vector("mm.soft_emb_norm.weight", config.hidden_size)
        self.projection = load.matrix("mm.input_projection.weight", config.text_size, config.hidden_size)

    def prepare(self, image: Pixels, max_patches: int | None = None) -> Picture:
        return self._pictures.prepare(image)

    def encode(self, ops: Ops, picture: Picture, cancel: Cancel | None = None) -> Tensor:
        x = ops.host(self.encoder.run(ops, picture, cancel))
        tokens = ops.tensor(pooled(x, picture.grid, self.merge))
        return ops.linear(ops.rms_norm(tokens, self.norm, self.encoder.config.eps), self.projection)
