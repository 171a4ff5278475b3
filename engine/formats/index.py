"""What every container is reduced to: named, typed, bounds-checked spans of bytes, and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Span:
    """`nbytes` bytes from byte `offset` of `path` on."""

    path: Path
    offset: int
    nbytes: int


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies.

    `shape` is row-major, outermost first (a GGUF file lists it the other way round); `encoding` is a name known to
    `engine.weights`; `nbytes` bytes start at byte `offset` of `path`. The reader that made it has checked that the
    span lies inside the file and that `nbytes` is what `shape` and `encoding` ask for.

    `split_heads` is 0 where the rows lie in their order. Else the rows are those of so many attention heads, and each
    head's even rows lie before its odd ones: of d rows, row 2i lies at i and row 2i + 1 at i + d/2. A head's bytes are
    then read together (`head_bytes`); heads themselves lie in order, so that any run of them is one span.

    `shift` is added to the decoded values of a vector.
    `pieces` is empty where the bytes are one span. Else `shape` is [n, …] and each of the n has a span of its own,
    perhaps in several files: `path` and `offset` are those of the first, `nbytes` is that of all.
    """

    name: str
    shape: tuple[int, ...]
    encoding: str
    path: Path
    offset: int
    nbytes: int
    split_heads: int = 0
    shift: float = 0.0
    pieces: tuple[Span, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the bytes lie, in their order."""
        return self.pieces or (Span(self.path, self.offset, self.nbytes),)

    @property
    def head_bytes(self) -> int:
        """Bytes of one head; of a tensor whose rows lie in order, 1."""
        return self.nbytes // self.split_heads if self.split_heads else 1


@dataclass(frozen=True)
class TensorIndex:
    """A model as it lies on disk: all its files, its metadata and its tensors by name.

    Metadata values are `int`, `float`, `bool`, `str`, or lists of one of these. `vectors` are small tensors that no
    file holds, because they follow from the metadata: values by name.
    """

    paths: tuple[Path, ...]
    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorInfo]
    vectors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
