"""A disk that hangs at any call, as a network's does when it is gone: loading and planning can be cancelled."""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.make_big import Shape, write_big
from engine import Budgets, Engine
from engine.cancel import Cancel, Cancelled
from engine.memory.machine import measure_drive
from engine.planning import plan
from tests.bytewise import bytewise
from tests.engine.memory.streaming import in_time

SHAPE = Shape(layers=8, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=512, tied=True, feed_forward="Q6_K")
CONTEXT = 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return write_big(tmp_path / "disk" / "山 é.gguf", SHAPE, bytewise)


@contextmanager
def hanging(path: Path, which: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Of the calls that name what is in the file's folder, or the folder, one opens a fifo first that nobody writes to,
    which blocks. → What is set once it does."""
    folder, fifo, hangs, seen = str(path.parent), path.parent.parent / "fifo", threading.Event(), []
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    open_itself = os.open

    def patch(module: Any, name: str) -> None:
        itself = getattr(module, name)

        def call(of: Any = ".", *rest: Any, **more: Any) -> Any:
            if not isinstance(of, int) and os.fspath(of).startswith(folder):
                seen.append(name)
                if len(seen) == which:
                    hangs.set()
                    os.close(open_itself(fifo, os.O_RDONLY))
            return itself(of, *rest, **more)

        patched.setattr(module, name, call)

    with monkeypatch.context() as patched:
        for module, name in ((os, "open"), (os, "stat"), (os, "scandir"), (io, "open"), (builtins, "open")):
            patch(module, name)
        try:
            yield hangs
        finally:
            os.close(open_itself(fifo, os.O_RDWR | os.O_NONBLOCK))


def load(ram: int | None) -> Callable[[Path, Cancel], None]:
    def work(path: Path, cancel: Cancel) -> None:
        figures = path.parent.parent / "figures.json"
        budgets = Budgets(ram=ram, context=CONTEXT, threads=1)
        with Engine.load(path, budgets, measurements=figures, cancel=cancel) as engine:
            assert engine.plan.streams == (ram is not None)

    return work


def plan_it(path: Path, cancel: Cancel) -> None:
    figures = path.parent.parent / "figures.json"
    plan(path, Budgets(ram=RAM, context=CONTEXT, threads=1), measurements=figures, cancel=cancel)


def measure(path: Path, cancel: Cancel) -> None:
    measure_drive(path, 0.001, cancel)


RAM = 2_500_000
"""Enough to run the model, and too little to hold it."""


@pytest.mark.parametrize("work", [load(None), load(RAM), plan_it, measure], ids=["load", "stream", "plan", "measure"])
def test_whichever_call_hangs_it_can_be_cancelled(
    work: Callable[[Path, Cancel], None], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(path, Cancel())  # the figures of the drive are kept from now on

    def hangs_at(which: int) -> bool:
        cancel = Cancel()
        with hanging(path, which, monkeypatch) as hangs:
            threading.Thread(target=lambda: (hangs.wait(), cancel.set()), daemon=True).start()
            try:
                work(path, cancel)
            except Cancelled:
                assert hangs.is_set()
                return True
            assert not hangs.is_set()
            hangs.set()
            return False

    def each_in_turn() -> None:
        which = 1
        while hangs_at(which):
            which += 1
        assert which > 2

    in_time(each_in_turn)
