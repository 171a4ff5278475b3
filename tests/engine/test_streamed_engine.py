"""An engine whose weights come from disk while it answers: faults, cancelling, closing, and what is left afterwards."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench.make_big import Shape, write_big
from engine import (
    Budgets,
    Cancel,
    Engine,
    Event,
    Finished,
    MillstreamError,
    ModelFileError,
    PrefillProgress,
    Settings,
    Text,
)
from tests.bytewise import bytewise

SHAPE = Shape(layers=6, hidden=512, heads=4, kv_heads=2, head_dim=64, ffn=1024, experts=8, experts_used=2)
BUDGETS = Budgets(context=256, threads=2, io_threads=3, chunk=16, ram=6_000_000)
GREEDY = Settings(max_tokens=120, temperature=0)


@pytest.fixture
def path(folder: Path) -> Path:
    return write_big(folder / "mill.gguf", SHAPE, bytewise)


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    with Engine.load(path, BUDGETS) as engine:
        assert engine.memory.weights < path.stat().st_size / 2
        yield engine


def until_decoding(events: Iterator[Event]) -> None:
    """Have the reply come to its first piece of text."""
    for event in events:
        if isinstance(event, Text):
            return
    raise AssertionError("the reply ended without text")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(path.stat().st_size // 2))


@pytest.mark.parametrize("fault", [truncate, overwrite])
def test_a_fault_in_mid_answer_is_told_and_the_model_can_be_opened_again(
    fault: Callable[[Path], None], engine: Engine, path: Path
) -> None:
    sound, wanted = path.read_bytes(), engine.fingerprint("The mill", 4)
    events = engine.generate("The mill", GREEDY)
    until_decoding(events)
    fault(path)
    with pytest.raises(ModelFileError, match=r"mill\.gguf"):
        list(events)
    with pytest.raises(ModelFileError, match=r"mill\.gguf"):
        list(engine.generate("The mill", GREEDY))
    engine.close()
    assert engine.memory.total == 0
    path.write_bytes(sound)
    with Engine.load(path, BUDGETS) as again:
        assert again.fingerprint("The mill", 4) == wanted


def test_a_file_that_is_replaced_is_read_on_as_it_was(engine: Engine, path: Path) -> None:
    wanted = engine.fingerprint("The mill", 4)
    other = write_big(path.with_name("other.gguf"), SHAPE, bytewise, seed=9)
    os.replace(other, path)
    assert engine.fingerprint("The mill", 4) == wanted
    with Engine.load(path, BUDGETS) as another:
        assert another.fingerprint("The mill", 4) != wanted


def test_a_reply_is_the_same_streamed_and_resident_and_after_another(engine: Engine, path: Path) -> None:
    with Engine.load(path, Budgets(context=256, threads=2)) as resident:
        wanted = list(resident.generate("The mill", GREEDY))
    for _ in range(2):
        made = list(engine.generate("The mill", GREEDY))
        assert [each for each in made if isinstance(each, Text)] == [each for each in wanted if isinstance(each, Text)]


def test_a_cancelled_reply_keeps_what_was_said_and_the_next_goes_on(engine: Engine) -> None:
    whole = [event.text for event in engine.generate("The mill", GREEDY) if isinstance(event, Text)]
    cancel, said = Cancel(), []
    for event in engine.generate("The mill", GREEDY, cancel=cancel):
        if isinstance(event, Text):
            said.append(event.text)
            cancel.set()
    assert isinstance(event, Finished) and event.reason == "cancelled"
    assert said == whole[: len(said)] and len(said) < len(whole)
    assert [event.text for event in engine.generate("The mill", GREEDY) if isinstance(event, Text)] == whole


def test_a_prompt_can_be_cancelled_from_another_thread_while_it_is_read(engine: Engine) -> None:
    cancel, begun = Cancel(), time.monotonic()
    for event in engine.generate("The mill by the river. " * 9, GREEDY, cancel=cancel):
        if isinstance(event, PrefillProgress) and event.done == 0:
            threading.Timer(0.01, cancel.set).start()
    assert isinstance(event, Finished) and event.reason == "cancelled"
    assert time.monotonic() - begun < 20


def test_closing_in_mid_answer_leaves_no_memory_no_thread_and_no_open_file(path: Path) -> None:
    before = threading.active_count()
    engine = Engine.load(path, BUDGETS)
    events = engine.generate("The mill", GREEDY)
    until_decoding(events)
    engine.close()
    with pytest.raises(MillstreamError, match="closed"):
        list(events)
    assert engine.memory.total == 0
    del events, engine
    wait_until(lambda: threading.active_count() == before)
    wait_until(lambda: path not in open_files())


@pytest.mark.parametrize("ram", [BUDGETS.ram, None])
def test_closing_frees_the_weights_without_the_garbage_collector(ram: int | None, path: Path) -> None:
    with no_garbage_collection():
        engine = Engine.load(path, replace(BUDGETS, ram=ram))
        until_decoding(engine.generate("The mill", GREEDY))
        held = [weakref.ref(engine._model)]
        if engine._streaming is not None:
            held += [weakref.ref(engine._streaming), weakref.ref(engine._streaming.stream._arena)]
        engine.close()
        assert len(held) == (1 if ram is None else 3)
        assert all(each() is None for each in held)


def test_a_refused_load_leaves_nothing(path: Path) -> None:
    before = threading.active_count()
    truncate(path)
    with pytest.raises(MillstreamError):
        Engine.load(path, BUDGETS)
    wait_until(lambda: threading.active_count() == before)
    wait_until(lambda: path not in open_files())


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wait_until(condition: Callable[[], bool]) -> None:
    """Threads end a moment after they are told to."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def open_files() -> set[Path]:
    """Those of this process, where the system tells."""
    place = Path("/proc/self/fd")
    if not place.exists():
        return set()
    return {Path(os.path.realpath(link)) for link in place.iterdir()}
