"""Tensors read from disk into memory of the caller's, in the order in which a model uses their bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cached_property
from itertools import islice

import numpy as np

from engine.buffers import U8
from engine.cancel import Cancel, Cancelled
from engine.formats.index import Span, TensorInfo
from engine.memory.reader import ModelFile, ModelFiles, Pending, ReadPool
from engine.memory.rows import put_in_order
from engine.types import LoadProgress

PIECE = 8 << 20
"""Bytes per read: small enough that a cancel is noticed at once, large enough for any disk."""
SMALL_PIECE = 1 << 17
"""The same where the system is to keep no copy: so much of one it has for each that is read at once."""
TURNED = 1 << 19
"""Bytes of a matrix that lies column by column which are held a second time, while they are brought into rows."""
AT_ONCE = 4
"""Pieces that are read at once: most drives give more to several, and a read that hangs can be left to itself."""


class TensorReader:
    """The files of a model, and the threads that read them. For one thread.

    `progress` is told as the bytes come. A cancelled read raises `Cancelled`.
    """

    def __init__(
        self,
        *,
        keep_cached: bool = True,
        progress: Callable[[LoadProgress], None] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        """Without `keep_cached` the system keeps no copy of what was read."""
        self._files = ModelFiles(keep_cached=keep_cached, cancel=cancel)
        self._piece_bytes = PIECE if keep_cached else SMALL_PIECE
        self._progress = progress
        self._cancel = cancel
        self.bytes_read = 0
        """Bytes read so far."""
        self.total = 0
        """Bytes that are going to be read, which is for the caller to say."""

    def read(self, into: U8, info: TensorInfo) -> None:
        """Read as many of a tensor's first bytes, uint8 [n]. Raises ModelFileError where they cannot be read."""
        if info.transposed:
            return self._read_turned(into, info)
        at = 0
        for span in info.spans:
            piece = into[at : at + span.nbytes]
            self._read_span(span, piece, info)
            at += piece.size

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if "_pool" in self.__dict__:
            self._pool.close()
        self._files.close()

    @cached_property
    def _pool(self) -> ReadPool:
        return ReadPool(AT_ONCE)

    def _read_turned(self, into: U8, info: TensorInfo) -> None:
        """All of a matrix that lies column by column, brought into rows as it comes: no second one is held."""
        rows, columns = info.shape
        column = info.nbytes // max(columns, 1)
        matrix = into.reshape(rows, columns, -1)
        (span,) = info.spans
        most = min(max(TURNED // max(column, 1), 1), columns)
        room = np.empty(most * column, np.uint8)
        for first in range(0, columns, most):
            some = room[: min(most, columns - first) * column]
            self._read_span(Span(span.path, span.offset + first * column, some.size), some, info)
            matrix[:, first : first + most] = some.reshape(-1, rows, matrix.shape[2]).swapaxes(0, 1)

    def _read_span(self, span: Span, into: U8, info: TensorInfo) -> None:
        """The first bytes of a span."""
        file = _Anywhere(self._files[span.path])
        most = max(self._piece_bytes // info.unit_bytes, 1) * info.unit_bytes
        starts = iter(range(0, into.size, most))
        under_way: deque[tuple[Pending, U8]] = deque()
        try:
            while True:
                for start in islice(starts, AT_ONCE - len(under_way)):
                    piece = into[start : start + most]
                    pending = self._pool.submit(file, span.offset + start, piece.data, info.name, piece.size)
                    under_way.append((pending, piece))
                if not under_way:
                    return
                self._await(under_way[0][0])
                _, piece = under_way.popleft()
                if info.split_heads or info.column_runs:
                    put_in_order(piece, info)
                self.bytes_read += piece.size
                if self._progress is not None:
                    self._progress(LoadProgress("Reading weights", self.bytes_read, self.total))
        finally:
            self._pool.abandon(pending for pending, _ in under_way)

    def _await(self, read: Pending) -> None:
        cancel = self._cancel or Cancel()
        with cancel.on_set(self._pool.wake):
            if not self._pool.wait(read, cancel.is_set):
                raise Cancelled
        cancel.check()
        if read.error is not None:
            raise read.error


class _Anywhere:
    """A file that is read into memory which lies anywhere."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file

    def read_pages(self, into: memoryview, offset: int, tensor: str, least: int) -> int:
        self._file.read(np.frombuffer(into, np.uint8), offset, tensor)
        return least
