"""What ends the program from outside, at any moment: it leaves quietly, and all that it started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from app import signals
from engine.interrupts import held_back
from tests.app.running import ROOT, WAIT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals between processes")

MOMENTS = [0.004 + number * 0.02 for number in range(20)]
"""Seconds after the interpreter's own start."""
STARTED = "import sys; sys.path[0] = {root!r}; print('.', flush=True); from app.cli import main; sys.exit(main())"
SLEEPS = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(f'{os.getpid()}\\n'); time.sleep(600)"


@contextmanager
def begun(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program, from the first moment at which its own code runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED.format(root=str(ROOT)), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env=os.environ | {"MILLSTREAM_HOME": str(home)},
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == ".\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """→ the exit code, and what was said."""
    _, said = process.communicate(timeout=WAIT)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_every_moment_of_the_start_it_leaves_quietly(library: Path, number: signal.Signals) -> None:
    codes = []
    for moment in MOMENTS:
        with begun(library, "fingerprint", "tiny", "-p", "a", "-n", "1") as process:
            time.sleep(moment)
            process.send_signal(number)
            code, said = ended(process)
            assert said == "", f"after {moment} s"
            codes.append(code)
    # Before the program has asked for it, SIGTERM ends the process as it ends any; after its end nothing does.
    early = {-signal.SIGTERM} if number == signal.SIGTERM else set()
    assert set(codes) <= {128 + number, 0, *early}
    assert codes.count(128 + number) > len(MOMENTS) // 4


@pytest.fixture
def heard() -> Iterator[None]:
    """Programs hear SIGHUP, also where these tests were started by nohup, whose children would inherit its deafness."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_sweep_started_ends_with_it(starter: Path, library: Path, number: signal.Signals) -> None:
    with begun(library, "bench", str(starter), "--ram", "1GB,2GB", "--tokens", "4000") as process:
        ours = psutil.Process(process.pid)
        end = time.monotonic() + WAIT
        while not (children := ours.children(recursive=True)):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert ended(process) == (128 + number, "")
        assert not any(child.is_running() for child in children)


def test_a_peer_and_what_it_started_end_with_the_program(folder: Path, library: Path) -> None:
    pid = folder / "pid"
    sleeps = [sys.executable, "-c", SLEEPS, str(pid)]
    (folder / "peer.py").write_text(f"import subprocess; subprocess.run({sleeps!r})")
    with begun(library, "bench", "tiny", "--vs", f"'{sys.executable}' '{folder / 'peer.py'}'") as process:
        end = time.monotonic() + WAIT
        while not (pid.exists() and pid.read_text().endswith("\n")):
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert ended(process) == (143, "")
    assert not psutil.pid_exists(int(pid.read_text()))


def test_a_signal_that_is_to_be_ignored_stays_ignored(library: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with begun(library, "fingerprint", "tiny", "-p", "a", "-n", "1") as process:
            time.sleep(0.1)
            process.send_signal(signal.SIGHUP)
            assert ended(process) == (0, "")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_out_of_a_finaliser_the_signal_comes_once_more(capfd: pytest.CaptureFixture[str]) -> None:
    class Held:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)
            reached.append(True)

    reached: list[bool] = []
    before = signal.signal(signal.SIGTERM, signals._leave)
    try:
        with pytest.raises(SystemExit) as left:
            held = Held()
            del held
            assert reached
            time.sleep(5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 143 and capfd.readouterr().err == ""


def test_a_signal_waits_for_what_must_not_be_left_half_done() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler
