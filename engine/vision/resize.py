"""The size at which each family of models looks at a picture. Their numbers come from the model's own files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.errors import ImageError, SettingsError, UnsupportedModelError
from engine.vision.images import Pixels
from engine.vision.patches import MAX_EDGE, MAX_PATCHES, Filter, Patches, Picture

Size = tuple[int, int]
"""Height and width in pixels."""

MAX_RATIO: Final = 200
"""Of the longer side to the shorter one: Qwen's own limit."""

SOFT_TOKENS: Final = (70, 140, 280, 560, 1120)
"""The budgets that Gemma 4 was trained with."""


@dataclass(frozen=True)
class NearOwnSize:
    """Qwen2-VL to Qwen3.5: near the picture's own size and shape, between `min_pixels` and `max_pixels`.

    The formula is `smart_resize` of Transformers' `Qwen2VLImageProcessor`. Two things are ours, where a cap lies below
    the model's own: it also holds for long narrow pictures, whose longer side gives way, and it wins over `min_pixels`.
    """

    patches: Patches
    min_pixels: int
    max_pixels: int
    method: Filter = "bicubic"

    def __post_init__(self) -> None:
        if not 1 <= self.min_pixels <= self.max_pixels or self.max_pixels < self.patches.token_side**2:
            raise UnsupportedModelError(
                f"The model's limits on pictures, {self.min_pixels} to {self.max_pixels} pixels, leave room for none."
            )

    def prepare(self, pixels: Pixels, max_patches: int = MAX_PATCHES) -> Picture:
        """Raises ImageError for a picture longer than MAX_RATIO, SettingsError for a cap below one token."""
        height, width = self.size(pixels.shape[0], pixels.shape[1], max_patches)
        return self.patches.prepare(pixels, height, width, self.method)

    def size(self, height: int, width: int, max_patches: int = MAX_PATCHES) -> Size:
        """As `prepare` makes of a picture of that height and width."""
        _check_cap(max_patches, self.patches.merge**2)
        if max(height, width) > MAX_RATIO * min(height, width):
            raise ImageError(
                f"It has {width} × {height} pixels, and the model takes none whose longer side is more than "
                f"{MAX_RATIO} times the other: crop it."
            )
        step = self.patches.token_side
        most = min(self.max_pixels, max_patches * self.patches.side**2, MAX_EDGE**2)
        least = min(self.min_pixels, most)
        high, wide = round(height / step) * step, round(width / step) * step
        if high * wide > most:
            shrink = math.sqrt(height * width / most)
            high, wide = (max(step, math.floor(side / shrink / step) * step) for side in (height, width))
        elif high * wide < least:
            grow = math.sqrt(least / (height * width))
            high, wide = (math.ceil(side * grow / step) * step for side in (height, width))
        while high * wide > most:
            high, wide = (high - step, wide) if high >= wide else (high, wide - step)
        return high, wide


@dataclass(frozen=True)
class Square:
    """Gemma 3, without its pan and scan: every picture squeezed into `side` × `side`, so that no cap can hold."""

    patches: Patches
    side: int
    method: Filter = "bilinear"

    def __post_init__(self) -> None:
        _check_whole("side", self.side, self.patches)

    def prepare(self, pixels: Pixels) -> Picture:
        return self.patches.prepare(pixels, self.side, self.side, self.method)


@dataclass(frozen=True)
class TokenBudget:
    """Gemma 4: of the picture's own shape, as large as `tokens` allow, smaller pictures too.

    The formula is `get_aspect_ratio_preserving_size` of Transformers' `Gemma4ImageProcessor`.
    """

    patches: Patches
    tokens: int = 280
    method: Filter = "bicubic"

    def __post_init__(self) -> None:
        most = min(MAX_PATCHES // self.patches.merge**2, (MAX_EDGE // self.patches.token_side) ** 2)
        if not 1 <= self.tokens <= most:
            raise UnsupportedModelError(f"The model gives a picture {self.tokens} tokens; it must be from 1 to {most}.")

    def prepare(self, pixels: Pixels, max_patches: int = MAX_PATCHES) -> Picture:
        """Raises SettingsError for a cap below the model's least budget."""
        height, width = self.size(pixels.shape[0], pixels.shape[1], max_patches)
        return self.patches.prepare(pixels, height, width, self.method)

    def size(self, height: int, width: int, max_patches: int = MAX_PATCHES) -> Size:
        """As `prepare` makes of a picture of that height and width."""
        tokens, step = self._tokens(max_patches), self.patches.token_side
        scale = math.sqrt(tokens * self.patches.merge**2 * self.patches.side**2 / (height * width))
        high, wide = (math.floor(scale * side / step) * step for side in (height, width))
        if high == 0:
            return step, min(width // height, tokens) * step
        if wide == 0:
            return min(height // width, tokens) * step, step
        return high, wide

    def _tokens(self, max_patches: int) -> int:
        """Its own budget, or under a cap the largest that fits of those that the family knows."""
        area = self.patches.merge**2
        known = [tokens for tokens in (*SOFT_TOKENS, self.tokens) if tokens <= self.tokens]
        _check_cap(max_patches, min(known) * area)
        return max(tokens for tokens in known if tokens * area <= max_patches)


def _check_cap(max_patches: int, least: int) -> None:
    if max_patches < least:
        raise SettingsError(f"max_patches must be at least {least} for this model, not {max_patches}.")


def _check_whole(name: str, value: int, patches: Patches) -> None:
    """Of a square: whole tokens, and no more than MAX_PATCHES and MAX_EDGE allow."""
    unit, most = patches.token_side, min(math.isqrt(MAX_PATCHES) * patches.side, MAX_EDGE)
    if not unit <= value <= most or value % unit:
        raise UnsupportedModelError(
            f"The {name} of the model's pictures is {value}; it must be a multiple of {unit}, at most {most}."
        )
