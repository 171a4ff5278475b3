"""A lender over arrays in memory, as strict about the protocol as a ring of buffers in front of a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TypeVar

import numpy as np

from engine.errors import ModelFileError
from engine.kernels.lending import ExpertWindow, Lent, Window
from engine.kernels.ops import Stack, Weight

SIZES = ((1,), (3,), (8,), (17,), (1 << 30,), (17, 1, 8, 3))
"""Rows of the windows one after the other, round and round; as many as there are where that is fewer."""
GARBAGE = 0xA5

U8 = np.ndarray
Kind = TypeVar("Kind", Weight, Stack)
Piece = TypeVar("Piece", Window, ExpertWindow)


@dataclass(frozen=True, eq=False)
class Held:
    """The bytes of a weight or of a stack."""

    lender: ArrayLender
    data: U8


class ArrayLender:
    """Hands out copies in odd places, and writes garbage over them once the next is asked for.

    `fault` is the number of windows after which the disk fails once.
    """

    def __init__(self, sizes: Sequence[int] = SIZES[-1]) -> None:
        self.sizes = sizes
        self.fault: int | None = None
        self.busy = False
        """Whether an iterator is neither used up nor closed."""
        self.windows = 0
        self.walks: list[int] = []
        """Matrices of each walk so far."""
        self.experts_read: list[int] = []

    def lent(self, weight: Kind) -> Kind:
        """The same, lent from here on."""
        return replace(weight, data=weight.data[:0], lent=Held(self, weight.data))

    def walk(self, matrices: Sequence[Lent]) -> Iterator[Window]:
        self.walks.append(len(matrices))
        held = [self._data(each) for each in matrices]
        assert len({len(data) for data in held}) == 1
        return self._guarded(Window(first, data) for first, data in self._pieces(held))

    def rows(self, matrix: Lent, ids: Sequence[int]) -> U8:
        assert not self.busy
        self._count()
        return _elsewhere(self._data(matrix)[np.asarray(ids)])

    def experts(self, gate: Lent, up: Lent, down: Lent, ids: Sequence[int]) -> Iterator[ExpertWindow]:
        assert list(ids) == sorted(set(ids)) and all(isinstance(number, int) for number in ids)
        gates, ups, downs = map(self._data, (gate, up, down))

        def each() -> Iterator[ExpertWindow]:
            for number in ids:
                self.experts_read.append(number)
                for first, data in self._pieces([gates[number], ups[number]]):
                    yield ExpertWindow(number, False, first, data)
                for first, data in self._pieces([downs[number]]):
                    yield ExpertWindow(number, True, first, data)

        return self._guarded(each())

    def _data(self, lent: Lent) -> U8:
        assert isinstance(lent, Held) and lent.lender is self
        return lent.data

    def _pieces(self, held: Sequence[U8]) -> Iterator[tuple[int, tuple[U8, ...]]]:
        first = 0
        for size in cycle(self.sizes):
            if first >= len(held[0]):
                return
            yield first, tuple(data[first : first + size] for data in held)
            first += size

    def _guarded(self, windows: Iterator[Piece]) -> Iterator[Piece]:
        assert not self.busy
        self.busy = True
        return self._lending(windows)

    def _lending(self, windows: Iterator[Piece]) -> Iterator[Piece]:
        try:
            for window in windows:
                self._count()
                copies = tuple(map(_elsewhere, window.data))
                yield replace(window, data=copies)
                for copy in copies:
                    copy[:] = GARBAGE
        finally:
            self.busy = False

    def _count(self) -> None:
        self.windows += 1
        if self.fault is not None:
            self.fault -= 1
            if self.fault < 0:
                self.fault = None
                raise ModelFileError("The disk does not answer.")


def _elsewhere(data: U8) -> U8:
    """A C-contiguous copy at an odd address."""
    room = np.full(data.size + 65, GARBAGE, np.uint8)
    start = 1 - room.ctypes.data % 64 % 2
    copy = room[start : start + data.size].reshape(data.shape)
    copy[:] = data
    assert copy.ctypes.data % 2 and copy.flags.c_contiguous
    return copy
