from __future__ import annotations

import gc
import threading
import weakref

import pytest

from engine.cancel import Cancel, Cancelled, patiently
from engine.errors import BudgetError


def test_a_set_flag_is_seen_and_raised() -> None:
    cancel = Cancel()
    cancel.check()
    assert not cancel.is_set()
    cancel.set()
    assert cancel.is_set()
    with pytest.raises(Cancelled):
        cancel.check()


def test_whoever_waits_is_told_by_the_thread_that_sets_the_flag_and_not_afterwards() -> None:
    cancel, told = Cancel(), []
    with cancel.on_set(lambda: told.append(threading.current_thread())):
        assert told == []
        setter = threading.Thread(target=cancel.set)
        setter.start()
        setter.join()
        assert told == [setter]
    cancel.set()
    assert told == [setter]


def test_a_flag_that_is_set_already_tells_at_once() -> None:
    cancel, told = Cancel(), []
    cancel.set()
    with cancel.on_set(lambda: told.append(1)):
        assert told == [1]


def test_what_is_told_may_set_the_flag_again() -> None:
    cancel, told = Cancel(), []

    def again() -> None:
        told.append(1)
        if len(told) < 3:
            cancel.set()

    with cancel.on_set(again):
        cancel.set()
    assert len(told) == 3


def test_what_a_patient_call_gives_or_raises_comes_through() -> None:
    for cancel in (None, Cancel()):
        assert patiently(lambda: "made", cancel) == "made"
        with pytest.raises(ZeroDivisionError):
            patiently(lambda: 1 // 0, cancel)


def test_a_call_that_hangs_is_left_to_its_own_thread_when_it_is_cancelled() -> None:
    cancel, hangs, let_go, ended = Cancel(), threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        let_go.wait()
        ended.set()

    threading.Thread(target=lambda: (hangs.wait(), cancel.set())).start()
    with pytest.raises(Cancelled):
        patiently(hang, cancel)
    assert not ended.is_set()
    let_go.set()
    assert ended.wait(30)


def test_what_comes_too_late_is_kept_by_nobody() -> None:
    class Made:
        """What a call gives."""

    cancel, let_go, made = Cancel(), threading.Event(), []

    def hang() -> Made:
        cancel.set()
        let_go.wait()
        late = Made()
        made.append(weakref.ref(late))
        return late

    threads = set(threading.enumerate())
    with pytest.raises(Cancelled):
        patiently(hang, cancel)
    left = set(threading.enumerate()) - threads
    let_go.set()
    for thread in left:
        thread.join(30)
    gc.collect()
    assert made[0]() is None


def test_a_call_after_the_flag_is_set_is_not_made() -> None:
    cancel, made = Cancel(), []
    cancel.set()
    with pytest.raises(Cancelled):
        patiently(lambda: made.append(1), cancel)
    assert made == []


def test_a_thread_that_the_system_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BudgetError, match="close other programs"):
        patiently(lambda: 1, Cancel())
