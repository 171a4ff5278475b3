"""Experts of a mixture kept in memory by measured use: where their bytes lie, and which make room for others.

Every layer has rooms of its own, all of one size: nothing is lost between them, and a prompt, whose chunks ask for
nearly all experts of one layer after the other, leaves the rooms of the others alone. An expert is worth its uses in
the last passes and, a fifth as much each, those of a longer while.

Chosen by `bench/expert_cache.py`: over four made-up conversations and two recorded from mixtures with random weights
(tiny Qwen3.5, small Qwen3), 10 to 80 % of the bytes in memory, it finds 1.0 point fewer than the best policy of each
case on average and 3.5 at worst; halving after 8 passes alone 2.2 and 12.1, ARC 3.3 and 10.2, LRU 3.8 and 11.9.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.address_space import raise_it
from engine.buffers import U8, mapped
from engine.errors import BudgetError
from engine.memory.raw_file import PAGE
from engine.units import human_bytes

HALVED_AFTER: Final = (1, 32)
"""Passes over a layer after which a use counts half, in the two counts of uses."""
WEIGHTS: Final = (1.0, 0.2)
"""What a use is worth in each."""


@dataclass(frozen=True)
class Counts:
    """Experts asked for that were in memory, with their bytes, and those that were not."""

    found: int
    missed: int
    bytes_found: int


class Slabs:
    """Rooms for experts, of one thread. It says only where bytes lie: the caller fills a room before it is read.

    A pass over a layer names the experts that it uses with `begin`, asks for each with `find`, and for room for those
    that are not there with `admit`. Until the next `begin` of that layer none of them is thrown out, so that what
    `find` and `admit` gave stays what it is.
    """

    def __init__(self, nbytes: int, n_experts: int, rooms: Mapping[Any, int]) -> None:
        """Take at most `nbytes` for layers of `n_experts` each; `rooms` are the bytes that one expert needs, by layer.

        A layer is named by whatever its caller names it by. Raises BudgetError where the system refuses the memory.
        """
        assert rooms and min(rooms.values()) > 0
        sizes: dict[Hashable, int] = {layer: -(-room // PAGE) * PAGE for layer, room in rooms.items()}
        numbers = _share_out(nbytes, n_experts, sizes)
        self.nbytes = sum(numbers[layer] * size for layer, size in sizes.items())
        """Bytes of all rooms: what is taken at most, since the system gives a page when it is first written."""
        memory = _pages(self.nbytes)
        self._shelves: dict[Hashable, _Shelf] = {}
        start = 0
        for layer, size in sizes.items():
            stop = start + numbers[layer] * size
            self._shelves[layer] = _Shelf(memory[start:stop], size, n_experts)
            start = stop
        self._found = self._missed = self._bytes_found = 0

    @property
    def counts(self) -> Counts:
        """What `find` was asked for so far."""
        return Counts(self._found, self._missed, self._bytes_found)

    def begin(self, layer: Hashable, ids: Sequence[int]) -> None:
        """A pass over the layer uses these experts, each named once: their uses count, and they stay."""
        self._shelves[layer].begin(ids)

    def find(self, layer: Hashable, expert: int) -> U8 | None:
        """The bytes of an expert that is in memory, as `admit` gave them."""
        held = self._shelves[layer].held.get(expert)
        if held is None:
            self._missed += 1
            return None
        self._found += 1
        self._bytes_found += held[1].size
        return held[1]

    def admit(self, layer: Hashable, expert: int, nbytes: int) -> U8 | None:
        """Room on a page's boundary to read an expert into that was not found: uint8 [nbytes], at most the layer's.

        `None` where those that are there and not in use are worth as much.
        """
        return self._shelves[layer].admit(expert, nbytes)

    def drop(self, layer: Hashable, expert: int) -> None:
        """The expert's room holds nothing of use, and nobody reads into it any more. Without one, nothing is done."""
        self._shelves[layer].drop(expert)


_FADING: Final = np.array([[0.5 ** (1 / passes)] for passes in HALVED_AFTER])
_WEIGHTS: Final = np.array(WEIGHTS)[:, None]


class _Shelf:
    """The rooms of one layer."""

    def __init__(self, memory: U8, size: int, n_experts: int) -> None:
        self.held: dict[int, tuple[U8, U8]] = {}
        """By expert, its room and the part of it that is filled."""
        self._free = [memory[start : start + size] for start in range(0, memory.size, size)][::-1]
        self._uses = np.zeros((len(WEIGHTS), n_experts))
        self._in_use = np.empty(0, np.intp)
        self._absent = np.full(n_experts, np.inf)
        """Infinite for those that are not there, and 0 for those that are."""
        self._leaving: npt.NDArray[np.float64] | None = None
        """What those are worth that may be thrown out, infinite for all others. Worked out when one has to be."""

    def begin(self, ids: Sequence[int]) -> None:
        self._in_use = np.array(ids, np.intp)
        self._uses *= _FADING
        self._uses[:, self._in_use] += _WEIGHTS
        self._leaving = None

    def admit(self, expert: int, nbytes: int) -> U8 | None:
        assert expert not in self.held
        room = self._free.pop() if self._free else self._cleared_for(expert)
        if room is None:
            return None
        assert nbytes <= room.size
        data = room[:nbytes]
        self.held[expert] = room, data
        self._absent[expert] = 0.0
        return data

    def drop(self, expert: int) -> None:
        held = self.held.pop(expert, None)
        if held is not None:
            self._free.append(held[0])
            self._absent[expert] = np.inf
            self._leaving = None

    def _cleared_for(self, expert: int) -> U8 | None:
        """The room of the expert of least worth that is not in use, where that is less than this one's."""
        if self._leaving is None:
            self._leaving = self._uses[0] + self._uses[1] + self._absent
            self._leaving[self._in_use] = np.inf
        least = int(self._leaving.argmin())
        if self._leaving[least] >= self._uses[0, expert] + self._uses[1, expert]:
            return None
        self._leaving[least] = self._absent[least] = np.inf
        return self.held.pop(least)[0]


def _share_out(nbytes: int, n_experts: int, sizes: Mapping[Hashable, int]) -> dict[Hashable, int]:
    """The number of rooms of each layer: the same for all, and one more for some as long as one fits."""
    one_each = sum(sizes.values())
    each = min(n_experts, nbytes // one_each)
    numbers = dict.fromkeys(sizes, each)
    left = nbytes - each * one_each
    while True:
        before = left
        for layer, size in sizes.items():
            if size <= left and numbers[layer] < n_experts:
                numbers[layer] += 1
                left -= size
        if left == before:
            return numbers


def _pages(nbytes: int) -> U8:
    """Memory on a page's boundary, and no more of it than asked for."""
    try:
        return mapped(nbytes) if nbytes else np.empty(0, np.uint8)
    except MemoryError as error:
        raise BudgetError(
            f"The system refused {human_bytes(nbytes)} of memory for experts: {raise_it()}close other "
            "programs, or grant less."
        ) from error
