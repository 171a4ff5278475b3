"""How the tests run the program, and what they expect of every run."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import app

ROOT = Path(app.__file__).parent.parent


WAIT = 120


OF_THE_LIBRARY = ("search", "pull", "downloads", "list", "import", "verify", "remove", "token")
"""Commands that run no model."""
COMMANDS = ("chat", "run", "info", "fit", "plan", "probe", "bench", "fingerprint", *OF_THE_LIBRARY)


Program = Callable[..., subprocess.CompletedProcess[str]]


def output(done: subprocess.CompletedProcess[str]) -> str:
    """Standard output of a run that went well and said nothing else."""
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a run was refused."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("millstream: ")
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    return done.stderr


def shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A line of `sh`, in which M is the program."""
    program = f'M() {{ "{sys.executable}" -m app "$@"; }}; {command}'
    return subprocess.run(
        ["sh", "-c", program],
        input="",
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env=os.environ | {"MILLSTREAM_HOME": str(home)},
        timeout=WAIT,
    )


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="no sh, no pseudo-terminals")


class Terminal:
    """The program with a pseudo-terminal for all its streams."""

    def __init__(self, library: Path, *arguments: str, **environment: str) -> None:
        import pty

        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library), "TERM": "dumb"} | environment,
            start_new_session=True,  # which has no terminal of its own, not even ours
        )
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def until(self, text: str) -> str:
        """Read on to the next place where this is shown: → what stands before it."""
        while (at := self.shown.find(text, self._seen)) < 0:
            assert select.select([self._ours], [], [], WAIT)[0], self.shown
            self.shown += os.read(self._ours, 4096).decode(errors="replace")
        before, self._seen = self.shown[self._seen : at], at + len(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl+C. The terminal is not the controlling one of the process, so that the signal comes from here."""
        # Python misses a signal between the prompt's last character and the wait for a key.
        time.sleep(0.3)
        self.process.send_signal(signal.SIGINT)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


STORY = ("--temperature", "0", "--max-tokens", "4000")


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """The program on the real starter, with all its streams in our hands."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", "app", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT)
