from __future__ import annotations

import ctypes
import sys

import psutil
import pytest

from engine.heap import give_back


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps free pages"
)
def test_free_pages_between_blocks_in_use_go_back_to_the_system() -> None:
    blocks = [bytearray(2000) for _ in range(40_000)]
    kept = blocks[::50]
    held = psutil.Process().memory_info().rss
    del blocks
    give_back()
    assert psutil.Process().memory_info().rss < held - 50_000_000
    assert len(kept) == 800
