"""A picture that goes with a message: its file as the engine takes it, and a small one to show. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.types import Image

PREVIEW_SIDE = 480
"""Pixels of the longer side: twice what is shown, for screens with two pixels a point."""


@dataclass(frozen=True)
class Attachment:
    """`preview` is RGB, a byte a colour, `preview_width` × `preview_height`. `width` and `height` are the picture's."""

    image: Image
    width: int
    height: int
    preview_width: int
    preview_height: int
    preview: bytes = field(repr=False)


def attach(source: Path | bytes, name: str = "") -> Attachment:
    """Read a picture to its end, as the engine will: what it refuses is refused here. `name` is what bytes are called.

    Takes a second for a large photograph, so never in the window's thread. Raises ImageError.
    """
    from engine.vision import images

    if isinstance(source, Path):
        name, source = source.name, images.read(source)
    small, (width, height) = images.preview(source, PREVIEW_SIDE, name=name)
    preview_height, preview_width = small.shape[:2]
    return Attachment(Image(source, name), width, height, preview_width, preview_height, small.tobytes())
