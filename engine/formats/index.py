"""What every container is reduced to: named, typed, bounds-checked spans of bytes, and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Run = tuple[int, int]
"""From a first row or column to the one after the last."""


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
    head's even rows lie before its odd ones: of d rows, row 2i lies at i and row 2i + 1 at i + d/2. Heads themselves
    lie in order, so that any run of them is one span.

    `runs` is empty where rows (elements, where there is one dimension) lie in their order. Else they are, one after the
    other, those that lie from each run's start to its stop; together all of them. `column_runs` says the same of the
    elements of every row.

    With `transposed` the matrix, which is one of floats, lies column by column. `shift` is added to the decoded values
    of a vector. With `logarithms` they are those of what they are to be below zero: x becomes −exp(x), rounded from
    float64.

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
    runs: tuple[Run, ...] = ()
    column_runs: tuple[Run, ...] = ()
    transposed: bool = False
    shift: float = 0.0
    logarithms: bool = False
    pieces: tuple[Span, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the bytes lie, in their order."""
        if self.runs:
            row = self.nbytes // self.shape[0]
            return tuple(Span(self.path, self.offset + at * row, (stop - at) * row) for at, stop in self.runs)
        return self.pieces or (Span(self.path, self.offset, self.nbytes),)

    @property
    def unit_bytes(self) -> int:
        """So many bytes, from the start of a span on, are read together to be put into their order: one head, one row,
        or 1 where they lie in it."""
        return self.nbytes // (self.split_heads or (self.shape[0] if self.column_runs else max(self.nbytes, 1)))


@dataclass(frozen=True)
class TensorIndex:
    """A model as it lies on disk: all its files, its metadata and its tensors by name.

    Metadata values are `int`, `float`, `bool`, `str`, or lists of one of these; a vocabulary's are other sequences,
    `Texts` and arrays, which take less memory. `vectors` are small tensors that no file holds, because they follow from
    the metadata: values by name. `sizes` are those of files of which only the beginning is here, so that such a model
    can be planned for, but not loaded.
    """

    paths: tuple[Path, ...]
    metadata: Mapping[str, object]
    tensors: Mapping[str, TensorInfo]
    vectors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    sizes: Mapping[Path, int] = field(default_factory=dict)
