"""Other programs, ours among them, each run to its end in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from engine.errors import MillstreamError, StorageError
from engine.interrupts import held_back

TAIL = 1 << 16
"""Bytes of a command's output that are looked at, from its end."""
GRACE = 2.0
"""Seconds in which a command may end by itself once it is told to."""

Command = str | list[str]
"""As `subprocess.Popen` takes it: a command line on Windows, its words elsewhere."""


@dataclass(frozen=True)
class Ended:
    """`status` is 0, what the command left with, or below zero the signal that ended it. `printed` is the end of its
    output, `said` the last line of what it complained of."""

    status: int
    printed: str
    said: str

    @property
    def fault(self) -> str:
        """How it failed, to stand after the name of the command."""
        ending = f"was ended by signal {-self.status}" if self.status < 0 else f"failed with exit status {self.status}"
        return f"{ending}: {self.said or 'it gave no reason'}"

    def told(self) -> dict[str, object] | None:
        """The JSON object in the last line that was printed, if there is one."""
        try:
            told = json.loads((self.printed.strip().splitlines() or [""])[-1])
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) else None


def our_command(model: Path, options: Sequence[str]) -> Command:
    """`millstream bench` by this interpreter, from wherever this program was loaded."""
    start = f"import sys; sys.path[0] = {str(Path(__file__).resolve().parents[1])!r}; from app.cli import main"
    return [sys.executable, "-c", f"{start}; sys.exit(main())", "bench", str(model), *options, "--json"]


def run(who: str, command: Command, limit: float) -> Ended:
    """Wait for the end of a command, whose input is empty.

    Raises MillstreamError where it does not start, or runs for more than `limit` seconds. A command that has not ended
    when this raises, as Ctrl+C and SIGTERM have it do (`app.signals`), is ended with all that it started.
    """
    with contextlib.ExitStack() as files:
        try:
            out, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        except OSError as error:
            raise StorageError(f"There is no room for temporary files: {error.strerror}.") from error
        process = None
        try:
            with held_back():
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
            status = process.wait(limit)
        except OSError as error:
            program = command if isinstance(command, str) else command[0]
            raise MillstreamError(f"{who} does not start: {program}: {error.strerror}.") from error
        except subprocess.TimeoutExpired as error:
            raise MillstreamError(
                f"{who} was stopped after {limit:g} seconds without an end; --limit allows it more."
            ) from error
        finally:
            with held_back():
                if process is not None:
                    _stop(process)
        said = (_tail(errors).strip().splitlines() or [""])[-1].strip()[:300]
        return Ended(status, _tail(out), said.removeprefix("millstream: "))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of a command: the process and all that it started."""
    if process.poll() is not None:
        return
    try:
        leader = psutil.Process(process.pid)
        running = [*leader.children(recursive=True), leader]
    except psutil.Error:
        running = []
    _each(running, psutil.Process.terminate)
    psutil.wait_procs(running, GRACE)
    _each(running, psutil.Process.kill)
    process.kill()
    process.wait()


def _each(processes: Sequence[psutil.Process], end: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            end(process)


def _tail(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    return file.read().decode("utf-8", errors="replace")
