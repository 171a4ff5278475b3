"""What a vision tower takes when it looks at its largest picture."""

from __future__ import annotations

from typing import Final

from engine.formats.index import TensorIndex
from engine.models.config import MAX_WIDTH
from engine.models.metadata import Metadata
from engine.vision import gemma3, gemma4, idefics3, qwen3vl
from engine.vision.config import MAX_IMAGE_SIZE, MAX_PATCH_SIZE
from engine.vision.encoder import ROWS
from engine.vision.resize import SOFT_TOKENS

SQUARES: Final = (gemma3.NAME, idefics3.NAME)
TENSORS: Final = 16
"""Rows as wide as a patch's that a layer holds at once, at most, its keys and values among them."""
MERGE: Final = 9
"""Patches of a token of Gemma 4."""


def tower_bytes(index: TensorIndex, max_patches: int | None) -> int:
    """Bytes of activations, an estimate on the safe side: `TENSORS` rows of the tower's width for each patch of the
    largest picture, up to the next power of two, and two rows of the feed-forward for each of those that it takes
    together. The weights are not among them."""
    metadata = Metadata(index.metadata)
    keys = metadata.under("clip.vision")
    width = keys.integer("embedding_length", high=MAX_WIDTH)
    inner = keys.integer("feed_forward_length", high=MAX_WIDTH)
    side = keys.integer("image_size", high=MAX_IMAGE_SIZE) // keys.integer("patch_size", high=MAX_PATCH_SIZE)
    name = metadata.text("clip.projector_type", default="") or metadata.text("clip.vision.projector_type", default="")
    if name in SQUARES:
        patches = side * side
    elif name == gemma4.NAME:
        patches = min(SOFT_TOKENS[2] * MERGE, max_patches or SOFT_TOKENS[2] * MERGE)
    else:
        patches = max_patches or qwen3vl.PATCHES
    rows = 1 << max(patches - 1, 1).bit_length()
    return 4 * (rows * TENSORS * width + 2 * min(rows, ROWS) * inner)
