"""Several budgets measured one after the other. The commands are small programs of the tests."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from app import child
from app.sweep import Row, agreement, heading, line, resident, size, sweep

WAIT = 120
TOLD = {
    "ram": 64_000_000,
    "memory": {"weights": 41_500_000, "kv": 9_000_000, "experts": 2_500_000},
    "read_per_token": 380_000_000,
    "decode_short_tok_s": 2.63,
    "prefill_tok_s": 118.44,
    "stall_share": 0.071,
    "hit_rate": 0.984,
    "arena_peak": 16_777_216,
    "peak_memory_bytes": 1_234_567_890,
    "fingerprint": "0123456789abcdef" * 4,
}


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def tells(**changes: object) -> list[str]:
    return program(f"print('Loading …'); print({json.dumps(TOLD | changes)!r})")


def run(*commands: child.Command) -> list[Row]:
    return list(sweep([(64_000_000, command) for command in commands], WAIT, lambda ram, done: None))


def test_each_budget_is_measured_in_turn_and_told_of_before() -> None:
    seen: list[tuple[int | None, int]] = []
    commands = [(None, tells()), (64_000_000, tells(ram=1))]
    rows = list(sweep(commands, WAIT, lambda ram, done: seen.append((ram, done))))
    assert seen == [(None, 0), (64_000_000, 1)]
    assert [row.told["ram"] for row in rows] == [64_000_000, 1]


FAILS = {
    "what our own program refuses is told in its words": (
        "import sys; print('millstream: Mill needs at least 90 MB.', file=sys.stderr); sys.exit(2)",
        "Mill needs at least 90 MB.",
    ),
    "another failure is told with its status": ("raise SystemExit(3)", "The measurement failed with exit status 3: it"),
    "a crash is told by its signal": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "The measurement was ended by signal 9",
    ),
    "no figures": ("print('Done.')", "did not print a JSON object"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
@pytest.mark.parametrize("case", FAILS)
def test_one_that_fails_has_its_sentence_in_its_row_and_the_others_go_on(case: str) -> None:
    code, sentence = FAILS[case]
    rows = run(tells(), program(code), tells())
    assert [bool(row.error) for row in rows] == [False, True, False]
    assert sentence in rows[1].error
    assert agreement(rows) == (True, "All fingerprints agree.")


def test_one_that_hangs_is_ended_and_the_others_go_on() -> None:
    commands = [(1, program("import time; time.sleep(600)")), (2, tells())]
    rows = list(sweep(commands, 2, lambda ram, done: None))
    assert "stopped after 2 seconds" in rows[0].error and not rows[1].error


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
def test_ctrl_c_ends_what_runs_and_what_comes_after_does_not_begin(folder: Path) -> None:
    pid, after = folder / "pid", folder / "after"
    code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}\\n'); time.sleep(600)"
    commands = [(1, tells()), (2, [*program(code), str(pid)]), (3, [*program(code), str(after)])]

    def interrupt() -> None:
        while not pid.exists() or not pid.read_text().endswith("\n"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        list(sweep(commands, WAIT, lambda ram, done: None))
    assert not psutil.pid_exists(int(pid.read_text()))
    assert not after.exists()


def test_fingerprints_that_differ_are_noticed_among_those_that_there_are() -> None:
    same, other, failed = Row(1, TOLD), Row(2, TOLD | {"fingerprint": "f" * 64}), Row(3, {}, "No.")
    assert agreement([same, other, failed])[0] is False
    assert agreement([same, failed, same]) == (True, "All fingerprints agree.")
    for rows in ([], [failed], [same, failed]):
        assert agreement(rows) == (True, "There are no two fingerprints to compare.")


def test_the_table_is_aligned_and_fits_a_terminal() -> None:
    shown = (heading() + line(Row(64_000_000, TOLD), 80)).splitlines()
    assert all(len(text) <= 80 for text in shown)
    assert shown[1].index("fingerprint") == shown[2].index("0123456789ab")
    for word, cell in (("ram", "64.0 MB"), ("resident", "44.0 MB"), ("a token", "380 MB"), ("peak", "1.23 GB")):
        assert shown[1].index(word) + len(word) == shown[2].index(cell) + len(cell)
    absent = line(Row(1, TOLD | {"hit_rate": None, "stall_share": 0.0}), 80)
    assert "0 %" in absent and "–" in absent
    assert resident(TOLD) == 44_000_000


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_sentence_stands_beside_its_budget_however_narrow_the_terminal(width: int) -> None:
    sentence = "Mill 30B needs at least 812.0 MB of memory, but 64.0 MB is granted: grant it more, or choose q8_0."
    first, *others = line(Row(64_000_000, {}, sentence), width).splitlines()
    assert first.startswith("64.0 MB Mill 30B")
    assert all(other.startswith(" " * 8) for other in others)
    assert all(len(text) <= width for text in (first, *others))
    assert " ".join(text[8:] for text in (first, *others)) == sentence
    assert line(Row(None, {}, "No."), width) == "   auto No.\n"


@pytest.mark.parametrize(
    ("nbytes", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.00 MB"),
        (98_362_432, "98.4 MB"),
        (5 * 10**12, "5.00 TB"),
    ],
)
def test_sizes_have_three_digits(nbytes: int, told: str) -> None:
    assert size(nbytes) == told
    assert len(told) <= 7
