from __future__ import annotations

import threading

import pytest

from engine.cancel import Cancel, Cancelled


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
