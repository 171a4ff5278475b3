"""The seam between kernels and weights that are not in memory: whoever keeps those lends them, window by window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.buffers import U8


@dataclass(frozen=True)
class Window:
    """Rows `first …` of matrices that are walked together: of each uint8 [rows, row_bytes], C-contiguous.

    Of a stack of heads, whole matrices `first …`: uint8 [matrices, rows, row_bytes]. The bytes are to be used before
    the next window is asked for.
    """

    first: int
    data: tuple[U8, ...]


@dataclass(frozen=True)
class ExpertWindow:
    """Rows `first …` of one expert: of its gate and its up matrix, or, with `down`, of its last one alone."""

    expert: int
    down: bool
    first: int
    data: tuple[U8, ...]


class Lent(Protocol):
    """The bytes of one `Weight` or `Stack`, some or all of which lie on disk."""

    @property
    def lender(self) -> Lender: ...


class Lender(Protocol):
    """Reads ahead in the order in which it was asked before.

    All of it is for one thread, and one iterator at a time: to be closed or used up before anything else is asked.
    Each raises ModelFileError where the disk refuses or the file has changed, and `Cancelled` where the work it is for
    was cancelled; the lender can be asked again afterwards.
    """

    def walk(self, matrices: Sequence[Lent]) -> Iterator[Window]:
        """Every row of matrices that have the same number of rows, in ascending order."""
        ...

    def rows(self, matrix: Lent, ids: Sequence[int]) -> U8:
        """These rows, in this order, a row for each id: uint8 [n, row_bytes]."""
        ...

    def experts(self, gate: Lent, up: Lent, down: Lent, ids: Sequence[int]) -> Iterator[ExpertWindow]:
        """Every row of the experts with these ascending ids: of each expert first all of gate and up, then down."""
        ...
