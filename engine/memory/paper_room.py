"""Tensors on paper: their shapes, and the room that their buffers would take."""

from __future__ import annotations

from engine.kernels.native.tensors import room_bytes


class PaperRoom:
    """Buffers by size, of which none is given back to the system, as `Workspace`."""

    def __init__(self) -> None:
        self.free: dict[int, int] = {}
        self.nbytes = 0

    def take(self, n: int, width: int) -> PaperTensor:
        size = room_bytes(n, width)
        if self.free.get(size, 0):
            self.free[size] -= 1
        else:
            self.nbytes += size
        return PaperTensor(n, width, self, size)


class PaperTensor:
    """[n, width], whose buffer goes back to its room with the last reference."""

    def __init__(self, n: int, width: int, room: PaperRoom, size: int) -> None:
        self.n, self.width = n, width
        self._room, self._size = room, size

    def __del__(self) -> None:
        self._room.free[self._size] = self._room.free.get(self._size, 0) + 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.width


class PaperView(PaperTensor):
    """Elements of another tensor, which they keep alive."""

    def __init__(self, owner: PaperTensor, n: int, width: int) -> None:
        self.n, self.width = n, width
        self._owner = owner

    def __del__(self) -> None:
        pass
