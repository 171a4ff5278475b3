"""A picture's file, or its bytes, as colours: PNG, JPEG, WebP, GIF, BMP, and HEIC where pillow-heif is installed.

Pillow decodes. What it must not be trusted with is decided before: how large the file and the picture may be, and that
nothing but these formats is tried.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import ImageError
from engine.units import human_bytes

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

T = TypeVar("T")

Pixels = npt.NDArray[np.uint8]
"""RGB, uint8 [height, width, 3], C-contiguous."""

MAX_PIXELS: Final = 100_000_000
"""Ours, above all but the largest photographs. Decoding takes 10 to 14 bytes a pixel (measured), the result 3."""

MAX_BYTES: Final = 1 << 29
"""Of a file: an uncompressed picture of MAX_PIXELS fits."""

MAX_SCANS: Final = 128
"""Of a JPEG. Usual ones have 1 to 11. Each walks over the whole picture, so that a small file of many takes hours."""

_READERS: Final = {
    "PNG": ("PIL.PngImagePlugin", "PngImageFile"),
    "JPEG": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "WebP": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "GIF": ("PIL.GifImagePlugin", "GifImageFile"),
    "BMP": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "HEIC": ("pillow_heif", "HeifImageFile"),
}
_SCAN: Final = re.compile(rb"\xff\xda\0(?:\x08\x01|\x0a\x02|\x0c\x03|\x0e\x04)")
"""Start of scan, its length, its number of components: ISO/IEC 10918-1, B.2.3. In coded data 0 follows each 255."""
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"})
_UPRIGHT: Final = (False, 1, 1)
_ORIENTATIONS: Final = {
    2: (False, 1, -1),
    3: (False, -1, -1),
    4: (False, -1, 1),
    5: (True, 1, 1),
    6: (True, 1, -1),
    7: (True, -1, -1),
    8: (True, -1, 1),
}
"""EXIF's tag 274 → whether rows and columns change places, then the direction in which each of them is read."""


def open_image(source: bytes | Path, *, name: str = "The picture", max_pixels: int = MAX_PIXELS) -> Pixels:
    """The picture as a person sees it: turned as its EXIF says, over white where it is transparent, read-only.

    Of an animation it is the first frame. 16-bit colours keep their upper 8 bits. A JPEG of up to twice `max_pixels` is
    decoded at half its width and height. `name` is what errors call bytes; a path has its own name.

    Raises ImageError for anything that is not such a picture, or has more than `max_pixels`.
    """

    def decode(image: ImageFile) -> Pixels:
        image.load()
        return _turned(np.asarray(_rgb(image)), _orientation(image))

    return _opened(source, name, max_pixels, decode)


def preview(source: bytes | Path, side: int, *, name: str = "The picture") -> tuple[Pixels, tuple[int, int]]:
    """What `open_image` gives, made no larger than `side` either way, and the width and height that it had.

    The file is decoded to its end, but a JPEG at a fraction of its size. Raises ImageError as `open_image` does.
    """

    def decode(image: ImageFile) -> tuple[Pixels, tuple[int, int]]:
        width, height = image.size
        if not getattr(image, "decoderconfig", ()):  # a fraction has not been chosen yet
            image.draft(None, (side, side))
        image.load()
        small = _rgb(image)
        small.thumbnail((side, side))
        orientation = _orientation(image)
        swapped, _, _ = _ORIENTATIONS.get(orientation, _UPRIGHT)
        return _turned(np.asarray(small), orientation), (height, width) if swapped else (width, height)

    return _opened(source, name, MAX_PIXELS, decode)


def _opened(source: bytes | Path, name: str, max_pixels: int, decode: Callable[[ImageFile], T]) -> T:
    """What `decode` makes of the file once its kind and its size are known to be good. Raises ImageError."""
    if isinstance(source, Path):
        name, source = source.name, read(source)
    if not source:
        raise ImageError(f"{name} is empty. Save or download it again.")
    if len(source) > MAX_BYTES:
        raise ImageError(f"{name} has {human_bytes(len(source))}, more than the {human_bytes(MAX_BYTES)} of a picture.")
    kind = _kind(source[:256])
    if kind is None:
        raise ImageError(f"{name} is not a picture of a known kind: they are {', '.join(_READERS)}.")
    reader = _reader(kind, name)
    try:
        with reader(io.BytesIO(source)) as image:
            _check_size(image, source, name, max_pixels)
            return decode(image)
    except ImageError:
        raise
    except MemoryError:
        raise ImageError(f"{name} needs more memory than is free. Make the picture smaller.") from None
    except Exception:  # Pillow's decoders raise whatever hostile bytes lead them to
        raise ImageError(f"{name} is damaged or cut short. Save or download it again.") from None


def read(path: Path) -> bytes:
    """A file's bytes, at most one more than MAX_BYTES. A pipe or a device is never opened. Raises ImageError."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise ImageError(f"{path} is a folder, where a picture is wanted.")
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{path} is not an ordinary file. Choose a picture.")
        with open(path, "rb") as file:
            return file.read(min(status.st_size, MAX_BYTES + 1))
    except FileNotFoundError:
        raise ImageError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ImageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    swapped, down, across = _ORIENTATIONS.get(orientation, _UPRIGHT)
    pixels = np.ascontiguousarray((pixels.swapaxes(0, 1) if swapped else pixels)[::down, ::across])
    pixels.flags.writeable = False
    return pixels


def _kind(beginning: bytes) -> str | None:
    """The format of a file that begins so, by its own signature, whatever the file is called."""
    if beginning.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if beginning.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if beginning.startswith(b"RIFF") and beginning[8:12] == b"WEBP":
        return "WebP"
    if beginning.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if beginning.startswith(b"BM"):
        return "BMP"
    if beginning[4:8] == b"ftyp":  # a file type box, which lists its brands: ISO/IEC 14496-12, 4.3
        box = beginning[: int.from_bytes(beginning[:4], "big")]
        if not _HEIC_BRANDS.isdisjoint(box[at : at + 4] for at in range(8, len(box), 4)):
            return "HEIC"
    return None


def _reader(kind: str, name: str) -> Callable[[io.BytesIO], ImageFile]:
    """Pillow's class for that format: its `open` warns by a limit that only the whole process can change.

    The one for WebP reserves room at once, for 179 million pixels at most, which takes no memory before `load`.
    """
    module, member = _READERS[kind]
    try:
        reader: Callable[[io.BytesIO], ImageFile] = getattr(import_module(module), member)
    except ImportError:
        if kind != "HEIC":
            raise
        raise ImageError(f"{name} is a HEIC picture: install pillow-heif to read it, or save it as JPEG.") from None
    return reader


def _check_size(image: ImageFile, data: bytes, name: str, max_pixels: int) -> None:
    """From the header alone. A JPEG decoded at half size takes no more room than one of `max_pixels` does."""
    width, height = image.size
    jpeg = image.format == "JPEG"
    if jpeg and max_pixels < width * height <= 2 * max_pixels:
        image.draft(None, (max(1, width // 2), max(1, height // 2)))
    if image.width * image.height > max_pixels:
        raise ImageError(f"{name} has {width} × {height} pixels, more than the {max_pixels} allowed. Make it smaller.")
    if jpeg and sum(1 for _ in _SCAN.finditer(data)) > MAX_SCANS:
        raise ImageError(f"{name} is coded in more than {MAX_SCANS} scans, as no sound JPEG is. Save it again.")


def _orientation(image: ImageFile) -> int:
    """EXIF's, or XMP's where there is no EXIF. Metadata that cannot be read say nothing against the picture."""
    try:
        return int(image.getexif().get(274, 1))
    except Exception:  # as for the decoders
        return 1


def _rgb(image: Image) -> Image:
    from PIL import Image as pil

    transparent = image.info.get("transparency")
    if image.mode.startswith("I;16"):
        wide = np.asarray(image)  # Pillow would clip it
        narrow = (wide >> 8).astype(np.uint8)
        return pil.fromarray(np.where(wide == transparent, np.uint8(255), narrow)).convert("RGB")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    layer = image.convert("RGBA")
    over = pil.new("RGB", layer.size, "white")
    over.paste(layer, mask=layer.getchannel("A"))
    return over
