"""Which bytes of which files make the rows of a weight, and what brings them into their order."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from engine.buffers import U8
from engine.formats.index import TensorInfo
from engine.kernels.lending import Lender
from engine.memory.reader import ModelFile, ModelFiles

Segment = tuple[ModelFile, int, int]
"""A file, the offset in it, and so many bytes."""

ORDERED_AT_ONCE = 1 << 18
"""Bytes that are copied aside to put rows into their order; a head or a row at least."""


def can_be_lent(info: TensorInfo, start: int = 0, rows: int | None = None, *, matrices: int = 1) -> bool:
    """Whether rows `start …` of a weight, or of each of so many matrices, can be read from disk each time they are
    used.

    Not where they lie by columns, or change once they are decoded; rows of heads whose halves lie apart come in whole
    heads, of one matrix. A vector is a row.
    """
    if info.transposed or info.logarithms or info.shift or math.prod(info.shape) == 0:
        return False
    flat, head = len(info.shape) == 2, head_rows(info)
    if not info.split_heads:
        return flat or not info.column_runs
    return flat and matrices == 1 and start % head == 0 and (rows or 0) % head == 0


def head_rows(info: TensorInfo) -> int:
    """Rows that only come together."""
    return info.shape[0] // info.split_heads if info.split_heads else 1


class StreamedRows:
    """A `Lent`: rows of a matrix, or of each matrix of a stack, in files.

    With `matrices` the tensor is so many of them, of equal size. Of its rows, or of those of each matrix, `rows` from
    row `start` on belong to this weight. `held` is what is in memory already: uint8 [h, row_bytes], the first h rows,
    or of a stack [h, rows, row_bytes], the first h matrices.
    """

    def __init__(
        self,
        lender: Lender,
        info: TensorInfo,
        files: ModelFiles,
        *,
        matrices: int | None = None,
        start: int = 0,
        rows: int | None = None,
        held: U8 | None = None,
    ) -> None:
        """Raises ModelFileError where a file cannot be opened."""
        all_rows = math.prod(info.shape[:-1]) // (matrices or 1)
        self.lender = lender
        self.info = info
        self.matrices = matrices
        self.rows = all_rows - start if rows is None else rows
        self.group = head_rows(info)
        """So many rows come together."""
        if not can_be_lent(info, start, self.rows, matrices=matrices or 1):
            raise ValueError(f"{info.name} cannot be lent in rows")
        self.row_bytes = info.nbytes // (all_rows * (matrices or 1))
        shape = (self.row_bytes,) if matrices is None else (self.rows, self.row_bytes)
        self.held: U8 = np.empty((0, *shape), np.uint8) if held is None else held
        if self.held.shape[1:] != shape or len(self.held) % self.group:
            raise ValueError(f"{info.name}: held rows of shape {self.held.shape}")
        self._first = start * self.row_bytes
        self._between = all_rows * self.row_bytes
        self._spans = [(files[span.path], span.offset, span.nbytes) for span in info.spans]
        self._ends = list(accumulate(nbytes for _, _, nbytes in self._spans))

    def whole(self) -> Run:
        """All of it: its rows, or the matrices of a stack."""
        if self.matrices is None:
            return self.matrix(0)
        shape = self.rows, self.row_bytes
        unit = self.rows * self.row_bytes
        return Run(self, self._first, self.matrices, unit, self._between, shape, self.held)

    def matrix(self, number: int) -> Run:
        """The rows of one matrix of a stack."""
        held = self.held
        if self.matrices is not None:
            held = held[number] if number < len(held) else held[:0, 0]
        row = self.row_bytes
        return Run(self, self._first + number * self._between, self.rows, row, row, (row,), held)

    def segments(self, at: int, nbytes: int) -> list[Segment]:
        """Where these bytes of the tensor lie, in their order."""
        if len(self._spans) == 1:
            file, offset, _ = self._spans[0]
            return [(file, offset + at, nbytes)]
        found: list[Segment] = []
        index = bisect_right(self._ends, at)
        while nbytes:
            file, offset, length = self._spans[index]
            inside = at - (self._ends[index] - length)
            count = min(nbytes, length - inside)
            _append(found, (file, offset + inside, count))
            at, nbytes, index = at + count, nbytes - count, index + 1
        return found

    def lies_at(self, row: int) -> int:
        """The row of the file's order that is row `row`."""
        if self.group == 1:
            return row
        head, inside = divmod(row, self.group)
        pair, odd = divmod(inside, 2)
        return head * self.group + pair + odd * (self.group // 2)


@dataclass(frozen=True, slots=True)
class Run:
    """Equal units, one after the other: rows, or whole matrices. `count` of `unit` bytes and `shape` each, from byte
    `start` of the tensor on, each `step` after the one before. The first ones are `held`."""

    of: StreamedRows
    start: int
    count: int
    unit: int
    step: int
    shape: tuple[int, ...]
    held: U8

    @property
    def scattered(self) -> bool:
        """Whether what follows each other may lie apart."""
        return self.step != self.unit or bool(self.of.info.runs or self.of.info.pieces)

    def segments(self, first: int, stop: int) -> list[Segment]:
        """Where units `first … stop - 1` lie."""
        if self.step == self.unit:
            return self.of.segments(self.start + first * self.unit, (stop - first) * self.unit)
        found: list[Segment] = []
        for unit in range(first, stop):
            for segment in self.of.segments(self.start + unit * self.step, self.unit):
                _append(found, segment)
        return found

    def put_in_order(self, data: U8) -> None:
        """Bring the bytes of whole units (rows: whole groups of them) as they lie on disk into their order, in place:
        uint8 [n]."""
        if self.of.info.split_heads or self.of.info.column_runs:
            put_in_order(data, self.of.info)


def put_in_order(data: U8, info: TensorInfo) -> None:
    """Bring whole heads or rows (`TensorInfo.unit_bytes`) as they lie on disk into their order, in place: uint8 [n]."""
    for piece in _pieces(data, info.unit_bytes):
        if info.split_heads:
            _join_heads(piece, info)
        if info.column_runs:
            _order_columns(piece, info)


def _pieces(data: U8, unit: int) -> Iterator[U8]:
    most = max(ORDERED_AT_ONCE // unit, 1) * unit
    return (data[at : at + most] for at in range(0, data.size, most))


def _join_heads(piece: U8, info: TensorInfo) -> None:
    """`TensorInfo.split_heads`"""
    pairs = info.shape[0] // info.split_heads // 2
    halves = piece.reshape(piece.size // info.unit_bytes, 2, pairs, -1)
    piece[:] = halves.swapaxes(1, 2).reshape(-1)


def _order_columns(piece: U8, info: TensorInfo) -> None:
    """`TensorInfo.column_runs`"""
    rows = piece.reshape(-1, info.shape[1], info.nbytes // math.prod(info.shape))
    rows[:] = np.concatenate([rows[:, start:stop] for start, stop in info.column_runs], axis=1)


def _append(found: list[Segment], segment: Segment) -> None:
    """Add a segment, as one with the last if it follows that in the file."""
    if found:
        file, offset, nbytes = found[-1]
        if segment[0] is file and segment[1] == offset + nbytes:
            found[-1] = file, offset, nbytes + segment[2]
            return
    found.append(segment)


def rows_together(runs: Sequence[Run]) -> int:
    """So many units of runs that are walked together come together."""
    return math.lcm(*(run.of.group if len(run.shape) == 1 else 1 for run in runs))
