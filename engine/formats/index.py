"""What every container is reduced to: named, typed, bounds-checked spans of bytes, and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies.

    `shape` is row-major, outermost first (a GGUF file lists it the other way round); `encoding` is a name known to
    `engine.weights`; `nbytes` bytes start at byte `offset` of `path`. The reader that made it has checked that the
    span lies inside the file and that `nbytes` is what `shape` and `encoding` ask for.
    """

    name: str
    shape: tuple[int, ...]
    encoding: str
    path: Path
    offset: int
    nbytes: int


@dataclass(frozen=True)
class TensorIndex:
    """A model as it lies on disk: all its files, its metadata and its tensors by name.

    Metadata values are `int`, `float`, `bool`, `str`, or lists of one of these.
    """

    paths: tuple[Path, ...]
    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorInfo]
