"""The throttle, the pacer and the rate, on a clock that the test moves."""

from __future__ import annotations

from itertools import pairwise

from app.throttle import Every, Rate, Throttle


class Hand:
    """A clock with the timers that were set on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[float] = []

    def __call__(self) -> float:
        return self.now


def throttle(clock: Hand) -> tuple[Throttle, list[float]]:
    runs: list[float] = []
    made = Throttle(
        0.04, lambda: runs.append(clock.now), lambda wait: clock.timers.append(clock.now + wait), clock=clock
    )
    return made, runs


def test_the_first_call_runs_at_once_and_sets_no_timer() -> None:
    clock = Hand()
    call, runs = throttle(clock)
    call()
    assert runs == [100.0]
    assert clock.timers == []


def test_a_thousand_calls_a_second_run_25_times_a_second_and_the_last_is_not_lost() -> None:
    clock = Hand()
    call, runs = throttle(clock)
    for _ in range(1000):
        call()
        clock.now += 0.001
        while clock.timers and clock.timers[0] <= clock.now:
            clock.timers.pop(0)
            call.fire()
    call()
    last_call = clock.now
    for due in clock.timers:
        clock.now = due
        call.fire()
    assert 24 <= len(runs) <= 27
    assert all(after - before > 0.0399 for before, after in pairwise(runs))
    assert runs[-1] >= last_call


def test_slow_calls_all_run_at_once() -> None:
    clock = Hand()
    call, runs = throttle(clock)
    for _ in range(5):
        call()
        clock.now += 0.5
    assert len(runs) == 5
    assert clock.timers == []


def test_a_timer_that_outlives_its_call_does_nothing() -> None:
    clock = Hand()
    call, runs = throttle(clock)
    call()
    call()
    call.drop()
    clock.now += 1
    call.fire()
    assert runs == [100.0]


def test_every_says_yes_once_an_interval() -> None:
    clock = Hand()
    every = Every(1.0, clock)
    answers = []
    for _ in range(50):
        answers.append(every.due())
        clock.now += 0.1
    assert sum(answers) in (4, 5)
    assert answers[0]


def test_rate_counts_the_intervals_between_arrivals() -> None:
    clock = Hand()
    rate = Rate(window=8, clock=clock)
    assert rate.per_second is None
    rate.arrived()
    assert rate.per_second is None
    for _ in range(30):
        clock.now += 0.05
        rate.arrived()
    assert rate.per_second is not None
    assert abs(rate.per_second - 20) < 1e-6


def test_rate_forgets_what_was_long_ago() -> None:
    clock = Hand()
    rate = Rate(window=4, clock=clock)
    rate.arrived()
    clock.now += 1000
    for _ in range(4):
        rate.arrived()
        clock.now += 0.1
    assert rate.per_second is not None
    assert abs(rate.per_second - 10) < 1e-6
