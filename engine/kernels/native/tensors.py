"""Activations in reusable buffers: float32 [n, width], given back when the last reference goes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    """`nbytes` of uninitialised memory on a 64-byte boundary."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT
    return raw[shift : shift + nbytes]


class Workspace:
    """Free buffers by size. A step asks for the same sizes again and again, so nothing is allocated after the first."""

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[npt.NDArray[np.uint8], int]]] = {}
        self.nbytes = 0

    def take(self, n: int, width: int) -> NativeTensor:
        size = n * width * 4
        spare = self._free.get(size)
        if spare:
            memory, address = spare.pop()
        else:
            memory = aligned(size)
            address = memory.ctypes.data
            self.nbytes += size
        return NativeTensor(self, memory, address, n, width)

    def give_back(self, memory: npt.NDArray[np.uint8], address: int) -> None:
        self._free.setdefault(memory.nbytes, []).append((memory, address))

    def trim(self, keep: int) -> None:
        """Release free buffers larger than `keep` bytes."""
        for size in [size for size in self._free if size > keep]:
            self.nbytes -= size * len(self._free.pop(size))


class NativeTensor:
    """float32 [n, width] at `address`; a view keeps its owner alive instead of owning memory."""

    __slots__ = ("_memory", "_owner", "_workspace", "address", "n", "width")

    def __init__(
        self, workspace: Workspace, memory: npt.NDArray[np.uint8], address: int, n: int, width: int,
        owner: NativeTensor | None = None,
    ) -> None:  # fmt: skip
        self._workspace, self._memory, self._owner = workspace, memory, owner
        self.address, self.n, self.width = address, n, width

    def __del__(self) -> None:
        if self._owner is None:
            self._workspace.give_back(self._memory, self.address)

    def rows(self, start: int, stop: int) -> NativeTensor:
        skipped = start * self.width * 4
        memory = self._memory[skipped:]
        return NativeTensor(self._workspace, memory, self.address + skipped, stop - start, self.width, owner=self)

    def array(self) -> npt.NDArray[np.float32]:
        """The values as a view, valid while this tensor lives."""
        return self._memory[: self.n * self.width * 4].view(np.float32).reshape(self.n, self.width)
