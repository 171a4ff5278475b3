"""The limit that may be set to what this process maps: RLIMIT_AS and RLIMIT_DATA, a shell's `ulimit -v` and `-d`.

Under one, what is only set aside counts as much as what is used: stacks of threads, and what the heap maps ahead.
Windows has none, and macOS does not keep to it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Final

import psutil

from engine.errors import BudgetError
from engine.units import human_bytes

LIBRARIES: Final = 128 << 20
"""Bytes that the libraries map before any model is looked at; 112 MB were measured, with one thread in BLAS."""
SPARE: Final = 40 << 20
"""Bytes that are left for stacks and fragments."""
STACK: Final = 1 << 20
"""Bytes of a thread's stack: eight times as many are usual, for code that calls deeper than any of ours."""
ARENA_MAX: Final = -8
"""M_ARENA_MAX of mallopt(3): each thread would set aside 64 MB for a heap of its own."""


def limit() -> int | None:
    """The lower of the two in bytes; `None` where there is none."""
    return min((most for most, _ in _limits()), default=None)


def room() -> int | None:
    """Bytes that can still be mapped for a model; `None` where there is no limit."""
    left = min((most - mapped for most, mapped in _limits()), default=None)
    return None if left is None else max(left - SPARE, 0)


def binds() -> bool:
    """Whether it is this limit that memory is short by, and not other programs."""
    left = room()
    return left is not None and left < psutil.virtual_memory().available


def raise_it() -> str:
    """The first way out where memory is refused, with ", or " to the next; nothing where there is no limit."""
    most = limit()
    return "" if most is None else f"raise the limit of {human_bytes(most)} that this process has (ulimit -v), or "


def prepare() -> None:
    """Under a limit, make little of it do, and load numpy, whose BLAS would start a thread with a stack and a buffer
    for each processor; nothing here calls it. For the start of a program.

    Raises BudgetError where the libraries would not find room: some end the process then.
    """
    left = min((most - mapped for most, mapped in _limits()), default=None)
    if left is None:
        return
    if left < LIBRARIES:
        needed = (limit() or 0) - left + LIBRARIES
        raise BudgetError(
            f"This process is limited to {human_bytes(limit() or 0)} of memory, and the program alone takes "
            f"{human_bytes(needed)}, without a model: raise the limit (ulimit -v)."
        )
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(ARENA_MAX, 1)
    threading.stack_size(STACK)
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        # Not for the programs that are started from here.
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _limits() -> list[tuple[int, int]]:
    """Each limit that is set, and what counts towards it already."""
    if sys.platform in ("win32", "darwin"):
        return []
    import resource

    held = psutil.Process().memory_info()
    data = getattr(held, "data", 0)
    soft = (
        (resource.getrlimit(kind)[0], used)
        for kind, used in ((resource.RLIMIT_AS, held.vms), (resource.RLIMIT_DATA, data))
    )
    return [(most, used) for most, used in soft if most != resource.RLIM_INFINITY]
