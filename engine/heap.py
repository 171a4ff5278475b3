"""Memory that has been freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """After something large was built out of many small pieces: let go of the free pages that lie between the rest.

    Only glibc keeps those (malloc_trim(3)); elsewhere this does nothing.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
