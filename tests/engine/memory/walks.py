"""What the tests of streams share: matrices of known bytes, and walks over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.memory.raw_file import PAGE
from engine.memory.rows import StreamedRows
from engine.memory.stream import Stream
from tests.engine.memory.streaming import (
    U8,
    tensor,
)

MakeStream = Callable[..., Stream]
BLOCK = 16 * PAGE


def layers(stream: Stream, path: Path, count: int, blocks: int = 4) -> list[StreamedRows]:
    """Matrices on pages' boundaries, one after the other, of so many blocks each; a row is a page."""
    return [stream.matrix(tensor(path, number * blocks * BLOCK, 16 * blocks, PAGE)) for number in range(count)]


def offsets(layer: StreamedRows) -> set[int]:
    return set(range(layer.info.offset, layer.info.offset + layer.info.nbytes, BLOCK))


def walked(stream: Stream, *matrices: StreamedRows) -> list[U8]:
    """All rows of each matrix, copied out of the windows, which must follow each other."""
    found: list[list[U8]] = [[] for _ in matrices]
    for window in stream.walk(matrices):
        assert window.first == sum(len(part) for part in found[0])
        for parts, lent in zip(found, window.data, strict=True):
            assert lent.flags.c_contiguous
            parts.append(lent.copy())
    return [np.concatenate(parts) for parts in found]


def check(stream: Stream, layer: StreamedRows, data: U8) -> None:
    """That a walk gives the layer's bytes."""
    offset, nbytes = layer.info.offset, layer.info.nbytes
    np.testing.assert_array_equal(walked(stream, layer)[0].reshape(-1), data[offset : offset + nbytes])
