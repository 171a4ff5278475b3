"""Pictures for the tests, and their files: Pillow writes them, or where it cannot, the tests do."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def scene(height: int, width: int, channels: int = 3, seed: int = 1) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def written(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def smooth(height: int, width: int) -> Image.Image:
    """Colours that survive JPEG nearly unchanged."""
    rows, columns = np.mgrid[0:height, 0:width]
    colours = np.stack([rows * 200 / height, columns * 200 / width, np.full_like(rows, 90)], axis=-1)
    return Image.fromarray(colours.astype(np.uint8))


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, extra: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
