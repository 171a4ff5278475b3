"""A command watched from outside: what memory its process takes, and what the system keeps of a file beside it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.cached_pages import CachedPages

ROOT = Path(__file__).parents[1]
WAIT = 600.0
"""Seconds after which a command is taken to hang."""
INTERVAL = 0.002
"""Seconds between two looks at the process."""
PAGES_INTERVAL = 0.02
"""Seconds between two looks at the system's cache, which take longer."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process's memory is made of")


@dataclass(frozen=True)
class Watched:
    """How a command ended, and the most bytes that were seen at once.

    `resident` is of the process: `anonymous` memory, files that it has mapped (its libraries, too) and shared memory;
    the kernel's own high-water mark counts, so that no peak falls between two looks. `cached` is of the file: pages
    that the system keeps in memory. `together` is the most of both.
    """

    code: int
    out: str
    errors: str
    resident: int
    anonymous: int
    cached: int
    looks: int

    @property
    def together(self) -> int:
        return self.resident + self.cached

    def json(self) -> Any:
        """The object that it printed, after an end without errors."""
        assert (self.code, self.errors) == (0, ""), self.errors
        return json.loads(self.out)


def millstream(*arguments: object) -> list[str]:
    """The program's command line by this interpreter."""
    return [sys.executable, "-m", "app", *map(str, arguments)]


def watch(command: Sequence[str], file: Path, *, meanwhile: Callable[[int], None] | None = None) -> Watched:
    """Run a command to its end in the checkout, and look at its process and at the pages of `file` all the time.

    `meanwhile` is called with the process's id at each look.
    """
    resident = anonymous = cached = looks = 0
    pages_due = 0.0
    with (
        CachedPages(file) as pages,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as process,
    ):
        end = time.monotonic() + WAIT
        try:
            while process.poll() is None:
                now = time.monotonic()
                assert now < end, f"{command} hangs"
                held = _memory(process.pid)
                if "VmHWM" in held:
                    looks += 1
                    anonymous = max(anonymous, held["RssAnon"])
                    resident = max(resident, held["VmHWM"], held["RssAnon"] + held["RssFile"] + held["RssShmem"])
                if now >= pages_due:
                    cached = max(cached, pages.nbytes())
                    pages_due = time.monotonic() + PAGES_INTERVAL
                if meanwhile is not None:
                    meanwhile(process.pid)
                time.sleep(INTERVAL)
            out, errors = process.communicate()
        finally:
            process.kill()
        cached = max(cached, pages.nbytes())
    return Watched(process.returncode, out, errors, resident, anonymous, cached, looks)


def bytes_read(pid: int) -> int:
    """Bytes that the process has read through the system so far, from wherever."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)


def _memory(pid: int) -> dict[str, int]:
    """Bytes, by the names of /proc/PID/status; none of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.startswith(("VmHWM:", "RssAnon:", "RssFile:", "RssShmem:")))
    return {name.rstrip(":"): int(kilobytes) * 1024 for name, kilobytes, *_ in fields}


STACK = 512
"""Kilobytes of each thread's stack `within` a limit, which count whole from the start; 8192 by default."""


def within(command: Sequence[str], limit: int) -> list[str]:
    """The command with at most `limit` bytes of private memory that it may write to, by setrlimit(RLIMIT_DATA): what it
    asks for, touched or not.

    Stacks of threads are smaller for it, and OpenBLAS, which sets 32 MB aside for each thread and is asked for nothing
    here, has one.
    """
    script = f'ulimit -s {STACK} && ulimit -d {limit // 1024} && exec "$@"'
    return ["sh", "-c", script, "sh", "env", "OPENBLAS_NUM_THREADS=1", *command]


def bare_data() -> int:
    """Bytes that the limit counts of an interpreter that has just started."""
    script = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmData:')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return int(done.stdout) * 1024


@functools.cache
def no_group() -> str:
    """Why no command can be run in a memory cgroup of its own here; empty where it can."""
    tool = shutil.which("systemd-run")
    if tool is None:
        return "there is no systemd-run to make a memory cgroup with"
    trial = subprocess.run(in_group(["true"], 64 << 20), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return (
        "" if trial.returncode == 0 else f"systemd makes no memory cgroup here: {' '.join(trial.stderr.split())[:200]}"
    )


def in_group(command: Sequence[str], limit: int) -> list[str]:
    """The command in a cgroup that may hold `limit` bytes, the system's cache of what it reads included; whoever passes
    that is killed."""
    scope = ["systemd-run", "--scope", "--quiet", "--collect", *(() if os.geteuid() == 0 else ("--user",))]
    return [*scope, "-p", f"MemoryMax={limit}", "-p", "MemorySwapMax=0", "--", *command]
