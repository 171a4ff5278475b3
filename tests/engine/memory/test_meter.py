from __future__ import annotations

import threading

import numpy as np
import psutil
import pytest

from engine.errors import BudgetError
from engine.memory.meter import Meter, peak_memory, require_free
from engine.types import MemoryUse


def test_bytes_are_held_by_part() -> None:
    meter = Meter()
    meter.add("weights", 100)
    meter.add("kv", 30)
    meter.add("weights", -40)
    assert meter.use() == MemoryUse(weights=60, kv=30, activations=0)
    assert meter.use().total == 90


def test_nothing_passes_the_limit_but_activations_that_are_held_already() -> None:
    meter = Meter(100)
    meter.add("weights", 60)
    assert meter.room() == 40
    for refused in (lambda: meter.add("kv", 41), lambda: meter.set("weights", 101)):
        with pytest.raises(BudgetError, match=r"4[01] bytes more .* come to 101 bytes, but 100 bytes is granted"):
            refused()
    assert meter.use() == MemoryUse(weights=60, kv=0, activations=0)
    meter.add("kv", 40)
    meter.set("activations", 30)
    assert (meter.use().total, meter.room()) == (130, 0)
    meter.add("kv", -5)
    meter.set("weights", 50)
    with pytest.raises(BudgetError):
        meter.add("arena", 1)
    meter.set("activations", 0)
    meter.add("arena", 15)
    assert meter.room() == 0 and Meter().room() is None


def test_threads_lose_no_bytes() -> None:
    meter = Meter()

    def work() -> None:
        for _ in range(5000):
            meter.add("kv", 3)
            meter.add("kv", -2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.use().kv == 20_000


def test_more_than_is_free_is_refused_with_both_numbers_and_the_remedy() -> None:
    require_free(1, "A crumb", "eat it")
    with pytest.raises(BudgetError, match=r"^A mill needs 1\.0 PB of memory, but .* is free: build it outside\.$"):
        require_free(10**15, "A mill", "build it outside")


def test_peak_memory_rises_with_what_is_touched_and_does_not_fall() -> None:
    before = peak_memory()
    assert before >= psutil.Process().memory_info().rss * 0.9
    block = np.ones(before + (64 << 20) - psutil.Process().memory_info().rss, np.uint8)
    risen = peak_memory()
    del block
    # The kernel keeps this count only to some pages a thread.
    assert peak_memory() + (1 << 20) >= risen >= before + (32 << 20)
