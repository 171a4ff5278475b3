"""The numbers of a vision tower, read from the keys that llama.cpp's converter writes (`MmprojModel`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.config import MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from engine.models.metadata import Metadata

PREFIX: Final = "clip.vision"
MAX_IMAGE_SIZE: Final = 2**13
MAX_PATCH_SIZE: Final = 2**8
MAX_MERGE: Final = 2**4
MAX_PIXELS: Final = 2**26

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class VisionConfig:
    """`merge` patches along each side make one token; `text_size` is the width of the text model's tokens."""

    n_layers: int
    hidden_size: int
    intermediate_size: int
    n_heads: int
    head_dim: int
    image_size: int
    patch_size: int
    merge: int
    text_size: int
    eps: float
    mean: Colour
    std: Colour

    @staticmethod
    def read(metadata: Metadata, *, merge: int, merge_key: str = "projector.scale_factor") -> VisionConfig:
        """`merge` is the family's own number, which `merge_key` replaces. Raises ModelFileError for what cannot be."""
        keys = metadata.under(PREFIX)
        hidden_size = keys.integer("embedding_length", high=MAX_WIDTH)
        n_heads = keys.integer("attention.head_count", high=MAX_HEADS)
        if hidden_size % n_heads and "attention.head_dim" not in keys:
            raise ModelFileError(
                f"The vision tower's width of {hidden_size} ({keys.whole('embedding_length')}) cannot be split among "
                f"{n_heads} heads ({keys.whole('attention.head_count')}); the file is damaged, fetch it again."
            )
        return VisionConfig(
            n_layers=keys.integer("block_count", high=MAX_LAYERS),
            hidden_size=hidden_size,
            intermediate_size=keys.integer("feed_forward_length", high=MAX_WIDTH),
            n_heads=n_heads,
            head_dim=keys.integer("attention.head_dim", high=MAX_HEAD_DIM, default=hidden_size // n_heads),
            image_size=keys.integer("image_size", high=MAX_IMAGE_SIZE),
            patch_size=keys.integer("patch_size", high=MAX_PATCH_SIZE),
            merge=keys.integer(merge_key, high=MAX_MERGE, default=merge),
            text_size=keys.integer("projection_dim", high=MAX_WIDTH),
            eps=keys.number("attention.layer_norm_epsilon", low=1e-12, high=1.0),
            mean=_colour(keys, "image_mean", low=-100.0),
            std=_colour(keys, "image_std", low=1e-6),
        )

    def check_axial(self) -> None:
        """Raise ModelFileError for heads that cannot turn by a patch's row and column, each half of the head."""
        if self.head_dim % 4:
            raise ModelFileError(
                f"The vision tower's heads of {self.head_dim} elements cannot turn in pairs by rows and columns "
                f"({PREFIX}.attention.head_count); the file is damaged, fetch it again."
            )


def require_gelu(metadata: Metadata) -> None:
    """Raise UnsupportedModelError where the layers use another function than GELU; without a key it is a quick
    approximation of it (llama.cpp, `clip_hparams`)."""
    if metadata.flag("clip.use_silu", default=False) or not metadata.flag("clip.use_gelu", default=False):
        raise UnsupportedModelError(
            "The vision tower's layers use another activation than GELU (clip.use_gelu), which this engine does not "
            "run for its projector."
        )


def _colour(keys: Metadata, key: str, *, low: float) -> Colour:
    red, green, blue = keys.numbers(key, count=3, low=low, high=100.0)
    return red, green, blue
