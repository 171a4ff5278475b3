"""A command on a small or read-only disk of its own: a tmpfs in a mount namespace, where the system allows one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest


@functools.cache
def available() -> bool:
    tool = shutil.which("unshare")
    trial = 'mount -t tmpfs -o size=64k tmpfs "$1"'
    return (
        bool(tool)
        and subprocess.run([tool, "-rm", "sh", "-c", trial, "sh", "/tmp"], capture_output=True).returncode == 0
    )


needed = pytest.mark.skipif(not available(), reason="this system allows no mount namespace")


def run(
    command: list[str], place: Path, size: str, prepare: str = "true", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Mount `size` at `place`, run the shell line `prepare` there, then the command, in the directory `place`."""
    script = f'place=$1; shift; mount -t tmpfs -o size={size} tmpfs "$place"; cd "$place"; {prepare}; exec "$@"'
    return subprocess.run(
        ["unshare", "-rm", "sh", "-ec", script, "sh", str(place), *command],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
