"""Memory for numbers that native code reads: aligned, and in large pages where the system has them."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]

ALIGNMENT = 64
"""Bytes: one cache line, and the widest vector register."""
LARGE_PAGE = 2 << 20
"""Bytes of a large page on x86-64, and on Arm with pages of 4 KiB."""


def aligned(nbytes: int) -> U8:
    """Uninitialised uint8 [nbytes] whose first byte lies on a cache line. Raises MemoryError."""
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + nbytes]


def mapped(nbytes: int) -> U8:
    """Zeroed uint8 [nbytes] on a page's boundary, which goes back to the system with the last reference; pages that
    nobody writes take no memory. Raises MemoryError.

    On a large page's boundary, and in such pages, where the system has them and there is one to fill. A drive delivers
    into them in longer pieces: reads past the system's cache came twice as fast as into pages of 4 KiB.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE") or nbytes < LARGE_PAGE:
        return _mapping(nbytes)
    buffer = _mapping(nbytes)
    if buffer.ctypes.data % LARGE_PAGE == 0:  # as newer kernels place whole large pages
        return buffer
    del buffer
    buffer = _mapping(nbytes + LARGE_PAGE)
    start = -buffer.ctypes.data % LARGE_PAGE
    return buffer[start : start + nbytes]


def in_large_pages(nbytes: int) -> U8:
    """Zeroed uint8 [nbytes] on a large page's boundary; pages that nobody writes take no memory. Raises MemoryError.

    Weights are read from end to end for every token: with pages of 4 KiB the processor spends as long on finding
    them as on reading them. Where the system knows no such pages, this is ordinary memory.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE") or nbytes < LARGE_PAGE:
        return aligned(nbytes)
    return mapped(nbytes)


def _mapping(nbytes: int) -> U8:
    """Raises MemoryError."""
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):  # where the default would be memory that processes share
            mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            mapping = mmap.mmap(-1, nbytes)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8)
