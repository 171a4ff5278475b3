"""The least time that this machine can take: what its memory gives away at most, and what its cores multiply."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.buffers import LARGE_PAGE, U8, in_large_pages
from engine.kernels.native import NativeOps, library
from engine.kernels.ops import Ops
from engine.memory.machine import free_memory
from engine.memory.raw_file import PAGE

BUFFER = 256 << 20
"""Bytes that are read: far more than any last-level cache holds."""
LEAST = 64 << 20
"""Bytes below which it would be a cache that is measured."""
SECONDS = 0.1
"""How long each of the two is tried. The first tries find threads asleep and cores shared, so that the best counts."""
ROUNDS = 1 << 22
"""Rounds of multiply-adds in one try: some milliseconds, long beside the waking of a thread."""


@dataclass(frozen=True)
class Floors:
    """What all threads of an `Ops` together can do in a second at most. `None` where memory is too short to tell.

    `read_bandwidth` in bytes: loads from memory and nothing else. `multiply_adds` of int16 as the kernels do them,
    sixteen for each `i16_dot` of simd.h, in registers and nothing else.
    """

    read_bandwidth: float | None
    multiply_adds: float


def measure_floors(ops: Ops, room: int | None = None) -> Floors | None:
    """Measure them with as many threads as `ops` has, and its instruction set, in less than half a second.

    Takes `BUFFER` bytes of memory meanwhile, or a quarter of what is free, and at most `room`. → `None` for an `Ops`
    whose kernels are not the native ones.
    """
    if not isinstance(ops, NativeOps):
        return None
    _, lib = library.load(ops.isa)
    pool = lib.ms_pool_new(ops.threads)
    if not pool:
        return None
    try:
        return Floors(_read_bandwidth(lib, pool, room), _best(lambda: multiply_adds(lib, pool, ROUNDS)[0]))
    finally:
        lib.ms_pool_free(pool)


def read(lib: ctypes.CDLL, pool: int, buffer: U8) -> int:
    """Read the buffer, a multiple of 32 bytes: → the exclusive or of its 8-byte words."""
    mixed = ctypes.c_uint64()
    lib.ms_read(pool, buffer.ctypes.data, buffer.size, ctypes.byref(mixed))
    return mixed.value


def multiply_adds(lib: ctypes.CDLL, pool: int, rounds: int) -> tuple[int, int]:
    """Multiply and add in registers: → how often, and the exclusive or of the 8-byte words of all sums."""
    done, mixed = ctypes.c_int64(), ctypes.c_uint64()
    lib.ms_multiply_adds(pool, rounds, ctypes.byref(done), ctypes.byref(mixed))
    return done.value, mixed.value


def _read_bandwidth(lib: ctypes.CDLL, pool: int, room: int | None) -> float | None:
    size = min(BUFFER, free_memory() // 4)
    if room is not None:
        size = min(size, room - LARGE_PAGE)  # for its boundary
    size = size // PAGE * PAGE
    if size < LEAST:
        return None
    try:
        buffer = in_large_pages(size)
    except MemoryError:
        return None
    buffer[::PAGE] = 1  # a page that nobody wrote is no memory yet

    def pass_over() -> int:
        read(lib, pool, buffer)
        return size

    return _best(pass_over)


def _best(work: Callable[[], int]) -> float:
    """The highest rate of what `work` counts, a second, of as many runs as there is time for."""
    best, end = 0.0, time.perf_counter() + SECONDS
    while (started := time.perf_counter()) < end:
        count = work()
        best = max(best, count / (time.perf_counter() - started))
    return best
