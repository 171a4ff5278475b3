"""What a vision tower takes when it looks at its largest picture."""

from __future__ import annotations

from typing import Final

from engine.formats.index import TensorIndex
from engine.models.config import MAX_WIDTH
from engine.models.metadata import Metadata
from engine.vision import gemma3, gemma4, idefics3, qwen3vl
from engine.vision.config import MAX_IMAGE_SIZE, MAX_MERGE, MAX_PATCH_SIZE, PREFIX
from engine.vision.encoder import ROWS
from engine.vision.resize import SOFT_TOKENS
from engine.vision.tower import projector_name

SQUARES: Final = (gemma3.NAME, idefics3.NAME)
MERGES: Final = {gemma3.NAME: 4, gemma4.NAME: 3, idefics3.NAME: 2, qwen3vl.NAME: 2}
"""Patches along each side of a token, where the file does not say."""
TENSORS: Final = 16
"""Rows as wide as a patch's that a layer holds at once, at most, its keys and values among them."""
COPIES: Final = 4
"""How often the colours of a patch are there: the picture of two frames that is kept, and the tower's own."""
SCRATCH: Final = 128
"""Bytes that each thread keeps for each row: results of two weights' tiles."""
WORKPLACE: Final = 1 << 19
"""Bytes that each thread keeps for attention, at most."""


def tower_needs(index: TensorIndex, max_patches: int | None, threads: int) -> tuple[int, int]:
    """Bytes that a tower takes for the largest picture, its weights aside, and the picture's tokens.

    An estimate on the safe side: `TENSORS` rows of the tower's width for each patch, up to the next power of two, its
    colours, two rows of the feed-forward for each of those that it takes together, and what threads keep.
    """
    metadata = Metadata(index.metadata)
    keys = metadata.under(PREFIX)
    name = projector_name(index)
    width = keys.integer("embedding_length", high=MAX_WIDTH)
    inner = keys.integer("feed_forward_length", high=MAX_WIDTH)
    patch = keys.integer("patch_size", high=MAX_PATCH_SIZE)
    side = keys.integer("image_size", high=MAX_IMAGE_SIZE) // patch
    merge_key = "spatial_merge_size" if name == qwen3vl.NAME else "projector.scale_factor"
    merge = keys.integer(merge_key, high=MAX_MERGE, default=MERGES[name])
    if name in SQUARES:
        patches = side * side
    elif name == gemma4.NAME:
        patches = SOFT_TOKENS[2] * merge**2
    else:
        patches = qwen3vl.PATCHES if max_patches is None else max_patches
    rows = 1 << max(patches - 1, 1).bit_length()
    floats = rows * (TENSORS * width + COPIES * 3 * patch**2) + 2 * min(rows, ROWS) * inner
    kept = threads * (rows * SCRATCH + 64 * max(width, inner) + WORKPLACE)
    return 4 * floats + kept, max(patches // merge**2, 1)
