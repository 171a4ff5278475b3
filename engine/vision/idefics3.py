"""The pictures of Idefics3 and SmolVLM (Laurençon et al., arXiv:2408.12637): SigLIP, then one projection of the patches
that become one token.

A picture is seen whole, squeezed into one square and resized once, not in tiles besides: what Transformers calls
`do_image_splitting=False`, with 64 tokens for SmolVLM's 512 pixels. Source of the formulas: Transformers,
`Idefics3Connector`.
"""

from __future__ import annotations

from typing import Final

from engine.cancel import Cancel
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.vision.config import VisionConfig, require_gelu
from engine.vision.images import Pixels
from engine.vision.patches import Patches, Picture
from engine.vision.resize import Square
from engine.vision.siglip import Siglip

NAME: Final = "idefics3"


def build(index: TensorIndex, load: WeightLoader) -> Idefics3:
    metadata = Metadata(index.metadata)
    require_gelu(metadata)
    return Idefics3(VisionConfig.read(metadata, merge=2), index, load)


class Idefics3:
    """A `Tower`. Every picture becomes a square of the same size, whatever `max_patches` is."""

    name = NAME

    def __init__(self, config: VisionConfig, index: TensorIndex, load: WeightLoader) -> None:
        # The patches of one token follow each other, so that they are one row when folded.
        patches = Patches(config.patch_size, config.merge, config.mean, config.std, blockwise=True)
        self._pictures = Square(patches, config.image_size, "lanczos")
        self.merge, self.hidden_size, self.width = config.merge, config.text_size, config.text_size
        self.encoder = Siglip(config, index, load, block=config.merge)
        self.projection = load.matrix("mm.model.fc.weight", config.text_size, config.hidden_size * config.merge**2)

    def prepare(self, image: Pixels, max_patches: int | None = None) -> Picture:
        return self._pictures.prepare(image)

    def encode(self, ops: Ops, picture: Picture, cancel: Cancel | None = None) -> Tensor:
        return ops.linear(ops.folded(self.encoder.run(ops, picture, cancel), self.merge**2), self.projection)
