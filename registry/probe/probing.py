"""Looking at this machine, each part by itself, so that one that fails or hangs takes nothing else with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from engine.cancel import Cancel
from registry.probe.battery import battery
from registry.probe.gpus import gpus
from registry.probe.memory import memory
from registry.probe.privacy import tidy
from registry.probe.processor import processor
from registry.probe.storage import storage
from registry.probe.system import system
from registry.probe.tree import Gpu, Memory, Probe, Problem, Processor, Storage, System

T = TypeVar("T")

ROOT: Final = Path("/")
PATIENCE: Final = 10.0
"""Seconds after which a part that does not answer is left out: a network's drive that is gone, a driver that hangs."""


def probe(models_folder: Path, measurements: Path | None, cancel: Cancel) -> Probe:
    """Look at everything, measuring nothing. `measurements` is the file of figures that `engine.plan` keeps.

    Raises `Cancelled` alone: what cannot be found out is empty in the tree, and a problem says why.
    """
    home = _home()
    looks = Looks(cancel, home)
    # The memory comes first: cards that share it are told of by it.
    memory_look = looks.begin("memory", lambda: (memory(ROOT), ()), Memory(0, 0, 0))
    system_look = looks.begin("system", lambda: (system(ROOT), ()), System("", "", "", ""))
    processor_look = looks.begin("processor", lambda: processor(ROOT), Processor("", "", 0, 0, None, 0, (), ""))
    nowhere = Storage(tidy(str(models_folder), home), "unreadable", "", None, None, None, None, None, None)
    storage_look = looks.begin("storage", lambda: storage(models_folder, measurements, home, ROOT), nowhere)
    battery_look = looks.begin("battery", lambda: (battery(), ()), None)
    told_memory, told_system = memory_look.end(), system_look.end()
    no_gpus: tuple[Gpu, ...] = ()
    gpu_look = looks.begin("gpus", lambda: gpus(ROOT, told_memory, told_system.version), no_gpus)
    return Probe(
        system=told_system,
        processor=processor_look.end(),
        memory=told_memory,
        storage=storage_look.end(),
        battery=battery_look.end(),
        gpus=gpu_look.end(),
        problems=tuple(looks.problems),
    )


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return ROOT


class Looks:
    """Parts that are looked at in threads of their own, and the problems that they met, in the order of their ends."""

    def __init__(self, cancel: Cancel, home: Path, patience: float = PATIENCE) -> None:
        self.problems: list[Problem] = []
        self.cancel = cancel
        self.home = home
        self.until = time.monotonic() + patience

    def begin(self, part: str, work: Callable[[], tuple[T, tuple[Problem, ...]]], otherwise: T) -> Look[T]:
        look = Look(self, part, otherwise)
        threading.Thread(target=look.work, args=(work,), name=f"probe {part}", daemon=True).start()
        return look


class Look(Generic[T]):
    """One of them. `otherwise` stands for what it does not find."""

    def __init__(self, looks: Looks, part: str, otherwise: T) -> None:
        self._looks, self._part, self._otherwise = looks, part, otherwise
        self._done = threading.Event()
        self._found: tuple[T, tuple[Problem, ...]] | None = None

    def work(self, work: Callable[[], tuple[T, tuple[Problem, ...]]]) -> None:
        try:
            self._found = work()
        except Exception as error:  # what drivers and systems answer has no bounds, and the page must come
            said = f"This could not be found out ({type(error).__name__}: {error})."
            self._found = self._otherwise, (Problem(self._part, said),)
        finally:
            self._done.set()

    def end(self) -> T:
        """What was found, when it is. Raises Cancelled."""
        looks = self._looks
        with looks.cancel.on_set(self._done.set):
            self._done.wait(max(looks.until - time.monotonic(), 0))
        looks.cancel.check()
        late = (Problem(self._part, "This did not answer in time, and was left out. A drive or a driver may hang."),)
        value, problems = self._found or (self._otherwise, late)
        looks.problems += [Problem(each.part, tidy(each.sentence, looks.home)) for each in problems]
        return value
