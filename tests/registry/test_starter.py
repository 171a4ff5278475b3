"""`python -m registry.starter`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def call(**variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    # Nothing can be fetched: whoever tries gets no further than this machine.
    env.update(PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple", **variables)
    command = [sys.executable, "-m", "registry.starter"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def test_it_prints_where_the_starter_is_without_asking_the_network(starter: Path) -> None:
    done = call(MILLSTREAM_HOME=str(starter.parent.parent))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{starter}\n", "")


def test_what_goes_wrong_is_a_sentence_and_exit_code_2(folder: Path) -> None:
    done = call(MILLSTREAM_HOME=str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert "it could not be reached" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs by system")
def test_nothing_is_fetched_where_the_drive_of_the_library_is_gone(folder: Path) -> None:
    config = folder / "millstream"
    config.mkdir()
    models = folder / "drive" / "models"
    (config / "library.json").write_text(json.dumps({"models": str(models), "coming": "", "leaving": ""}))
    done = call(MILLSTREAM_HOME="", XDG_CONFIG_HOME=str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Connect the drive" in done.stderr and f"in {models}, and that folder is not there" in done.stderr
    assert not models.parent.exists()
