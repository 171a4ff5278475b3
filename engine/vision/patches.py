"""A picture cut into the patches that a tower reads: one row of normalised colours for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from engine.errors import ImageError, UnsupportedModelError
from engine.vision.images import Pixels

F32 = npt.NDArray[np.float32]
Filter = Literal["bilinear", "bicubic", "lanczos"]

MAX_PATCHES: Final = 1 << 16
"""Of one picture: MAX_EDGE × MAX_EDGE in patches of 16, the most that a published model asks for (Qwen3-VL)."""

MAX_EDGE: Final = 4096
"""Pixels of a square picture as a tower sees it; another shape may have as many in all."""

_MOST: Final = {"side": 256, "merge": 16, "frames": 4}
_LARGEST: Final = 1e6


@contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise ImageError("Too little memory is free to prepare it. Make it smaller.") from None


@dataclass(frozen=True, eq=False)
class Picture:
    """`pixels` float32 [rows · columns, values of a patch]; `grid` is (rows, columns) in patches.

    It takes `tokens` places in the prompt. Two pictures of equal `digest` (sha256) are the same to a tower.
    """

    pixels: F32
    grid: tuple[int, int]
    tokens: int
    digest: bytes


@dataclass(frozen=True)
class Patches:
    """How a family cuts pictures: patches of `side` × `side` pixels, `merge` × `merge` of which make one token.

    A patch holds, outermost first, channel, frame, row, column, as a convolution's weights lie; `frames` repeats the
    still picture for towers that look at several at once. With `channels_last` it is row, column, channel.
    Patches follow each other row by row; with `blockwise` those of one token come together, tokens row by row.

    A colour c of 0 … 255 becomes (float32(c · (1/255)) - mean) / std: the first product in float64, the rest in
    float32, each rounded once.
    """

    side: int
    merge: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    frames: int = 1
    blockwise: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        """Raise UnsupportedModelError for numbers that no model has: they come out of files."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise UnsupportedModelError(
                    f"The {name} of a picture's patches is {value}; it must be from 1 to {most}."
                )
        if len(self.mean) != 3 or not all(abs(mean) < _LARGEST for mean in self.mean):
            raise UnsupportedModelError(f"The mean of a picture's colours is {self.mean}; three numbers are wanted.")
        if len(self.std) != 3 or not all(1 / _LARGEST < std < _LARGEST for std in self.std):
            raise UnsupportedModelError(
                f"The deviation of a picture's colours is {self.std}; three numbers above 0 are wanted."
            )

    @property
    def token_side(self) -> int:
        """Pixels along one side of what becomes one token."""
        return self.side * self.merge

    def prepare(self, pixels: Pixels, height: int, width: int, method: Filter) -> Picture:
        """`pixels` at `height` × `width`, multiples of `token_side`, cut.

        Raises UnsupportedModelError where that is more than MAX_PATCHES or MAX_EDGE allow.
        """
        if height * width > MAX_EDGE**2 or height * width > MAX_PATCHES * self.side**2:
            raise UnsupportedModelError(
                f"The model asks for a picture of {width} × {height} pixels, more than {MAX_EDGE} × {MAX_EDGE} or "
                f"{MAX_PATCHES} patches."
            )
        return self.cut(resized(pixels, height, width, method))

    @_enough_memory()
    def cut(self, pixels: Pixels) -> Picture:
        """The patches of `pixels`, whose height and width are multiples of `token_side`."""
        height, width, _ = pixels.shape
        rows, columns, area = height // self.side, width // self.side, self.side * self.side
        block = self.merge if self.blockwise else 1
        tiled = pixels.reshape(rows // block, block, self.side, columns // block, block, self.side, 3)
        codes = tiled.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, area)
        table = self._table()
        values = np.empty((rows * columns, 3, self.frames, area), np.float32)
        for channel in range(3):
            values[:, channel] = table[:, channel].take(codes[:, channel])[:, np.newaxis]
        if self.channels_last:
            values = np.ascontiguousarray(values.transpose(0, 2, 3, 1))
        # All that the values above follow from, in a fraction of their bytes.
        order = (self.side, self.merge, self.frames, self.blockwise, self.channels_last, height, width)
        digest = hashlib.sha256(repr(order).encode() + table.tobytes())
        digest.update(np.ascontiguousarray(pixels).data)
        return Picture(
            pixels=values.reshape(rows * columns, -1),
            grid=(rows, columns),
            tokens=rows * columns // self.merge**2,
            digest=digest.digest(),
        )

    def _table(self) -> F32:
        """What each code becomes in each channel: float32 [256, 3]."""
        scaled = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        table: F32 = np.divide(scaled[:, np.newaxis] - mean, std, dtype=np.float32)
        return table


@_enough_memory()
def resized(pixels: Pixels, height: int, width: int, method: Filter) -> Pixels:
    """`pixels` at another size: uint8 [height, width, 3].

    Pillow's filters widen with the reduction, so that nothing is skipped, and sum codes of 8 bits with weights of 22
    bits in whole numbers: the same result on every processor, whatever its vectors.
    """
    from PIL import Image

    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling[method.upper()]))
