"""The one account of the bytes that the engine holds."""

from __future__ import annotations

import sys
import threading
from typing import Final, Literal, get_args

import psutil

from engine.address_space import binds, raise_it
from engine.errors import BudgetError
from engine.memory.machine import free_memory
from engine.types import MemoryUse
from engine.units import human_bytes

Part = Literal["weights", "kv", "activations", "vision", "experts", "arena", "tables"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)


class Meter:
    """Bytes held, by part. Whoever allocates adds, whoever frees takes away; any thread may read.

    With a `limit`, all parts together never come to more than so many bytes: what would pass it is refused with
    BudgetError and not counted. So whoever allocates adds beforehand. Activations alone are counted when they are held
    already, and never refused.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._held: dict[Part, int] = dict.fromkeys(PARTS, 0)

    def add(self, part: Part, nbytes: int) -> None:
        """`nbytes` more are held in `part`; fewer where it is negative. Raises BudgetError beyond the limit."""
        with self._lock:
            self._put(part, self._held[part] + nbytes)

    def set(self, part: Part, nbytes: int) -> None:
        """`nbytes` are held in `part`, by the count of whoever holds them. Raises BudgetError beyond the limit."""
        with self._lock:
            self._put(part, nbytes)

    def room(self) -> int | None:
        """Bytes that are left of the limit; `None` where there is none."""
        with self._lock:
            return None if self.limit is None else max(self.limit - sum(self._held.values()), 0)

    def _put(self, part: Part, nbytes: int) -> None:
        more = nbytes - self._held[part]
        total = sum(self._held.values()) + more
        if self.limit is not None and total > self.limit and more > 0 and part != "activations":
            raise BudgetError(
                f"{human_bytes(more)} more of memory would come to {human_bytes(total)}, but {human_bytes(self.limit)} "
                "is granted: grant more memory, or choose a shorter context."
            )
        self._held[part] = nbytes

    def use(self) -> MemoryUse:
        with self._lock:
            return MemoryUse(**self._held)


def require_free(needed: int, what: str, remedy: str) -> None:
    """Raise BudgetError where `needed` bytes are more than the system, or a container, has to give away without
    swapping.

    The sentence reads "`what` needs X of memory, but Y is free: `remedy`."
    """
    free = free_memory()
    if needed > free:
        way = raise_it() if binds() else ""
        raise BudgetError(
            f"{what} needs {human_bytes(needed)} of memory, but {human_bytes(free)} is free: {way}{remedy}."
        )


def peak_memory() -> int:
    """The most bytes of real memory that this process has held at once."""
    if sys.platform == "linux":
        # getrusage would count what a parent held before exec (setmax_mm_hiwater_rss in the kernel's exec).
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
