"""The memory through which weights that are not resident pass: a ring of bytes that is lent in pieces."""

from __future__ import annotations

from collections import deque

from engine.address_space import raise_it
from engine.buffers import U8, mapped
from engine.errors import BudgetError
from engine.memory.raw_file import PAGE
from engine.memory.reader import Pending
from engine.units import human_bytes


def whole_pages(nbytes: int) -> int:
    """`nbytes`, rounded up to pages."""
    return -(-nbytes // PAGE) * PAGE


class Lease:
    """So many contiguous bytes of an arena, on pages' boundaries, until they are given back."""

    __slots__ = ("_returned", "data", "nbytes", "reads", "start")

    def __init__(self, start: int, data: U8) -> None:
        self.start = start
        self.nbytes = len(data)
        self.data = data
        self.reads: list[Pending] = []
        """What writes to it. Nobody else gets these bytes before all of it is done, given back or not."""
        self._returned = False

    def give_back(self) -> None:
        """Whatever of it is still being read is no longer wanted. A second call does nothing."""
        self._returned = True

    @property
    def free(self) -> bool:
        return self._returned and all(read.done for read in self.reads)


class Arena:
    """A ring: leases follow each other, and what is given back can be taken again once nothing before it, or nothing
    after it, is out. For one thread.

    All of its memory is taken at once, and given back to the system when nothing refers to it any more.
    """

    def __init__(self, nbytes: int) -> None:
        """Raises BudgetError where `nbytes`, of which whole pages count, is less than one or the system refuses."""
        self.nbytes = nbytes // PAGE * PAGE
        if not self.nbytes:
            raise BudgetError(f"Weights cannot pass through {nbytes} bytes of memory: grant at least {PAGE} bytes.")
        try:
            self._data: U8 = mapped(self.nbytes)
        except MemoryError as error:
            raise BudgetError(
                f"The system refused {human_bytes(self.nbytes)} of memory for weights on their way from disk: "
                f"{raise_it()}close other programs, or grant less."
            ) from error
        self._leases: deque[Lease] = deque()
        self._head = 0
        self.used = 0
        """Bytes that are out, or not yet found to be back."""
        self.peak = 0
        """The most that was out at once."""

    def take(self, nbytes: int, leaving: int = 0) -> Lease | None:
        """Whole pages for `nbytes`; `None` where there is no room now, or then none for another `leaving` bytes.

        Raises BudgetError where there will never be.
        """
        nbytes = whole_pages(nbytes)
        if nbytes > self.nbytes:
            raise BudgetError(
                f"{human_bytes(self.nbytes)} of memory for weights on their way from disk is too little for this "
                f"model: its blocks need at least {human_bytes(nbytes)}."
            )
        self._reclaim()
        tail = self._leases[0].start if self._leases else None
        start = self._spot(self._head, tail, nbytes)
        if start is None:
            return None
        if leaving and self._spot(start + nbytes, start if tail is None else tail, leaving) is None:
            return None
        lease = Lease(start, self._data[start : start + nbytes])
        self._leases.append(lease)
        self._head = start + nbytes
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        return lease

    def waits_for(self) -> Pending | None:
        """A read that nobody wants any more, but that keeps the oldest lease from being taken again."""
        self._reclaim()
        if not self._leases or not self._leases[0]._returned:
            return None
        return next((read for read in self._leases[0].reads if not read.done), None)

    def _spot(self, head: int, tail: int | None, nbytes: int) -> int | None:
        """Where `nbytes` could lie when what is out begins at `tail` and ends at `head`; nothing is out without
        `tail`."""
        if tail is None:
            return 0
        if head <= tail:
            return head if nbytes <= tail - head else None
        if nbytes <= self.nbytes - head:
            return head
        return 0 if nbytes <= tail else None

    def _reclaim(self) -> None:
        leases = self._leases
        while leases and leases[0].free:
            self.used -= leases.popleft().nbytes
        while leases and leases[-1].free:
            self.used -= leases.pop().nbytes
        self._head = leases[-1].start + leases[-1].nbytes if leases else 0
