"""The bridge to the engine's thread: order, cancelling, unloading, and the end."""

from __future__ import annotations

import threading

from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.requests import Answer, AnswerFailed, LoadCancelled, Loaded, Notice, Report, Unloaded
from engine import Cancel, Finished, Message, Settings
from tests.gui.silent_engine import SilentEngine, load_silent


class Watched(SilentEngine):
    """Remembers in which thread it was made and closed."""

    def __init__(self, threads: list[int]) -> None:
        self._threads = threads
        threads.append(threading.get_ident())

    def close(self) -> None:
        self._threads.append(threading.get_ident())


def collect(bridge: Bridge) -> list[Notice]:
    notices: list[Notice] = []
    bridge.notice.connect(notices.append)
    return notices


def test_an_engine_is_made_and_closed_in_a_thread_that_is_not_the_windows(qtbot: QtBot) -> None:
    threads: list[int] = []
    bridge = Bridge(lambda model, report, cancel: Watched(threads))
    notices = collect(bridge)
    bridge.load("any")
    qtbot.waitUntil(lambda: any(isinstance(notice, Loaded) for notice in notices))
    assert bridge.close()
    assert len(threads) == 2
    assert threads[0] == threads[1] != threading.get_ident()


def test_another_load_closes_the_engine_before_it_makes_the_next(qtbot: QtBot) -> None:
    order: list[str] = []

    class Ordered(SilentEngine):
        def __init__(self, name: str) -> None:
            self._name = name
            order.append(f"made {name}")

        def close(self) -> None:
            order.append(f"closed {self._name}")

    bridge = Bridge(lambda model, report, cancel: Ordered(model))
    notices = collect(bridge)
    bridge.load("one")
    bridge.load("two")
    bridge.unload()
    qtbot.waitUntil(lambda: any(isinstance(notice, Unloaded) for notice in notices))
    assert order == ["made one", "closed one", "made two", "closed two"]
    assert bridge.close()


def test_cancel_stops_what_was_asked_before_and_nothing_after(qtbot: QtBot) -> None:
    bridge = Bridge(load_silent)
    notices = collect(bridge)
    bridge.load("wait")
    bridge.load("wait")
    bridge.cancel()
    bridge.load("silent")
    qtbot.waitUntil(lambda: len(notices) == 3)
    assert [type(notice) for notice in notices] == [LoadCancelled, LoadCancelled, Loaded]

    bridge.ask(1, (Message("user", "Hello"),), Settings())
    bridge.cancel()
    qtbot.waitUntil(lambda: len(notices) == 4)
    answer = notices[3]
    assert isinstance(answer, Answer) and isinstance(answer.event, Finished)
    assert answer.event.reason == "cancelled"
    assert bridge.close()


def test_close_cancels_what_waits_as_well(qtbot: QtBot) -> None:
    bridge = Bridge(load_silent)
    for _ in range(3):
        bridge.load("wait")
    assert bridge.close()
    assert not bridge.running


def test_close_says_so_where_the_engine_does_not_listen(qtbot: QtBot) -> None:
    entered, release = threading.Event(), threading.Event()

    def deaf(model: str, report: Report, cancel: Cancel) -> SilentEngine:
        entered.set()
        release.wait()
        return SilentEngine()

    bridge = Bridge(deaf)
    bridge.load("any")
    assert entered.wait(60)
    assert not bridge.close(patience_s=0.05)
    assert bridge.running
    assert not bridge.close()
    release.set()
    qtbot.waitUntil(bridge.close)
    assert not bridge.running


def test_after_close_nothing_starts_again(qtbot: QtBot) -> None:
    bridge = Bridge(load_silent)
    assert bridge.close()
    bridge.load("silent")
    assert not bridge.running


def test_a_question_without_a_model_is_refused_in_a_sentence(qtbot: QtBot) -> None:
    bridge = Bridge(load_silent)
    notices = collect(bridge)
    bridge.ask(1, (Message("user", "Hello"),), Settings())
    qtbot.waitUntil(lambda: len(notices) == 1)
    assert isinstance(notices[0], AnswerFailed)
    assert notices[0].request_id == 1
    assert "No model" in notices[0].sentence
    assert bridge.close()
