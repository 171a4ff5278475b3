"""Activations in reusable buffers: float32 [n, width], given back when the last reference goes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.address_space import raise_it
from engine.buffers import U8, aligned
from engine.errors import BudgetError

Block = tuple[U8, int]
"""Memory and its address."""


EXACT = 16
"""Rows up to which a buffer has room for just so many; above, for the next power of two."""


def room_bytes(n: int, width: int) -> int:
    """Bytes of the buffer that a tensor [n, width] lies in."""
    return (n if n <= EXACT else 1 << (n - 1).bit_length()) * width * 4


def no_memory() -> BudgetError:
    return BudgetError(
        f"There was no memory left for this step: {raise_it()}use a smaller chunk, a shorter context or a smaller "
        "picture."
    )


class Workspace:
    """Free buffers by size. A step asks for the same sizes again and again, so nothing is allocated after the first.

    The last chunk of a prompt may have any number of rows. Its buffers are as large as if it had the next power of two
    of them, so that all lengths together hold less than twice the memory of the longest.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Block]] = {}
        self.nbytes = 0

    def take(self, n: int, width: int) -> NativeTensor:
        """Room for float32 [n, width], uninitialised. Raises BudgetError where there is none."""
        size = room_bytes(n, width)
        free = self._free.setdefault(size, [])
        if free:
            return NativeTensor(free.pop(), n, width, free)
        try:
            memory = aligned(size)
        except MemoryError as error:
            raise no_memory() from error
        self.nbytes += size
        return NativeTensor((memory, memory.ctypes.data), n, width, free)


class NativeTensor:
    """float32 [n, width] at `address`, whose block goes to `free` when this does."""

    __slots__ = ("_block", "_free", "address", "n", "width")

    def __init__(self, block: Block, n: int, width: int, free: list[Block]) -> None:
        self._block, self._free = block, free
        self.address, self.n, self.width = block[1], n, width

    def __del__(self) -> None:
        self._free.append(self._block)

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.width

    def rows(self, start: int, stop: int) -> NativeTensor:
        """Rows `start … stop - 1` as a view, which keeps this tensor alive."""
        return NativeView(self, start * self.width, stop - start, self.width)

    def shaped(self, n: int, width: int) -> NativeTensor:
        """The same elements as [n, width], which keeps this tensor alive."""
        return NativeView(self, 0, n, width)

    def array(self) -> npt.NDArray[np.float32]:
        """The values as a view, valid while this tensor lives."""
        return self._block[0][: self.n * self.width * 4].view(np.float32).reshape(self.n, self.width)


class NativeView(NativeTensor):
    """Elements of another tensor, which they keep alive; they own no block to give back."""

    __slots__ = ("_owner",)

    def __init__(self, owner: NativeTensor, skipped: int, n: int, width: int) -> None:
        """[n, width] after `skipped` elements."""
        block = (owner._block[0][skipped * 4 :], owner.address + skipped * 4)
        super().__init__(block, n, width, [])
        self._owner = owner
