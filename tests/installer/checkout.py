"""What the small checkout holds, and how the installer is called on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APP = """\
import json, os, sys
print(json.dumps({"args": sys.argv[1:], "pid": os.getpid(), "cwd": os.getcwd()}))
sys.exit(7)
"""
STARTER = """\
import sys
sys.exit("no network for the starter" if __import__("pathlib").Path("offline").exists() else 0)
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def variables(**more: str) -> dict[str, str]:
    """A process environment in which pip knows no index but one that cannot be reached, and no display is set."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM", "MILLSTREAM_TORCH_INDEX")
    kept = {name: value for name, value in os.environ.items() if name not in hidden and not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", **more}


def call(checkout: Path, *args: str, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[str]:
    """`python -m installer ARGS` in the checkout."""
    return subprocess.run(
        [python, "-m", "installer", *args],
        cwd=checkout,
        env=variables(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
