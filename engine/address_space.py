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

LIBRARIES: Final = {"as": 128 << 20, "data": 56 << 20}
"""Bytes that the libraries map before any model is looked at, with one thread in BLAS, by what is limited: 112 MB were
measured in all, 53 MB of it private and writable."""
SPARE: Final = {"as": 40 << 20, "data": -(24 << 20)}
"""Bytes that are left for stacks and fragments, beside what a plan allows for them: of private memory that is too much,
since most of what a process takes beside its model is mapped before any plan is made."""
OPTIONS: Final = {"as": "ulimit -v", "data": "ulimit -d"}
STACK: Final = 1 << 20
"""Bytes of a thread's stack: eight times as many are usual, for code that calls deeper than any of ours."""
LEAST_STACK: Final = 256 << 10
ARENA_MAX: Final = -8
"""M_ARENA_MAX of mallopt(3): each thread would set aside 64 MB for a heap of its own."""


def limit() -> int | None:
    """The lower of the two in bytes; `None` where there is none."""
    return min(_soft().values(), default=None)


def room() -> int | None:
    """Bytes that can still be mapped for a model; `None` where there is no limit."""
    left = min((most - mapped - SPARE[kind] for kind, most, mapped in _limits()), default=None)
    return None if left is None else max(left, 0)


def binds() -> bool:
    """Whether it is this limit that memory is short by, and not other programs."""
    left = room()
    return left is not None and left < psutil.virtual_memory().available


def raise_it() -> str:
    """The first way out where memory is refused, with ", or " to the next; nothing where there is no limit."""
    soft = _soft()
    if not soft:
        return ""
    kind, most = min(soft.items(), key=lambda each: each[1])
    return f"raise the limit of {human_bytes(most)} that this process has ({OPTIONS[kind]}), or "


def prepare() -> None:
    """Under a limit, make little of it do, and load numpy, whose BLAS would start a thread with a stack and a buffer
    for each processor; nothing here calls it. For the start of a program.

    Raises BudgetError where the libraries would not find room: some end the process then.
    """
    soft = _soft()
    if not soft:
        return
    try:
        mapped = {kind: used for kind, _, used in _limits()}
    except MemoryError:
        mapped = soft
    for kind, most in soft.items():
        if most - mapped[kind] < LIBRARIES[kind]:
            raise BudgetError(
                f"This process is limited to {human_bytes(most)} of memory, and the program alone takes "
                f"{human_bytes(mapped[kind] + LIBRARIES[kind])}, without a model: raise the limit ({OPTIONS[kind]})."
            )
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(ARENA_MAX, 1)
    threading.stack_size(min(STACK, _stack()))
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


def _stack() -> int:
    """Bytes of a thread's stack as the system would have it, where that is bounded."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return STACK if soft == resource.RLIM_INFINITY else max(soft, LEAST_STACK)


def _soft() -> dict[str, int]:
    """Each limit that is set, in bytes."""
    if sys.platform in ("win32", "darwin"):
        return {}
    import resource

    limits = {"as": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA}
    soft = {kind: resource.getrlimit(which)[0] for kind, which in limits.items()}
    return {kind: most for kind, most in soft.items() if most != resource.RLIM_INFINITY}


def _limits() -> list[tuple[str, int, int]]:
    """Each limit that is set: what it is of, how much it is, and what counts towards it already."""
    soft = _soft()
    if not soft:
        return []
    held = psutil.Process().memory_info()
    used = {"as": held.vms, "data": getattr(held, "data", 0)}
    return [(kind, most, used[kind]) for kind, most in soft.items()]
