"""The program under a limit of what it may map, as `ulimit -v` sets it: it works, or says why not in one sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.running import ROOT, WAIT, output, refusal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep to such a limit")

RUN = ("run", "starter", "-p", "hi", "--max-tokens", "4")
PLAN = ("plan", "starter")


@pytest.fixture
def home(starter: Path, folder: Path) -> Path:
    """A home with the starter and without measurements."""
    (folder / "models").mkdir()
    (folder / "models" / starter.name).symlink_to(starter)
    return folder


def limited(home: Path, megabytes: int, *arguments: str, kind: str = "v") -> subprocess.CompletedProcess[str]:
    line = f'ulimit -{kind} {megabytes}000; exec "$0" -m app "$@"'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *arguments],
        input="",
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env=os.environ | {"MILLSTREAM_HOME": str(home)},
        timeout=WAIT,
    )


@pytest.mark.parametrize("command", [RUN, PLAN], ids=["run", "plan"])
def test_under_every_limit_it_works_or_says_that_the_limit_is_the_reason(home: Path, command: tuple[str, ...]) -> None:
    worked = []
    for megabytes in (60, 130, 150, 165, 180, 210, 250, 300, 400, 550, 800, 1500, 3000):
        done = limited(home, megabytes, *command)
        worked.append(done.returncode == 0)
        if worked[-1]:
            assert output(done)
        else:
            said = refusal(done)
            assert "limit" in said and "ulimit -v" in said and "close other programs" not in said, megabytes
    assert worked == sorted(worked) and not worked[2] and worked[-4]


def note(done: subprocess.CompletedProcess[str]) -> str:
    """That less is free than was granted, as far as it was said."""
    told = re.fullmatch(r"millstream: \S+ GB were granted, \S+ MB are free: the plan uses that\.\n", done.stderr)
    return told[0] if told else ""


@pytest.mark.parametrize("options", [("--ram", "1GB"), ("--threads", "64"), ("--ram", "90MB", "--io-threads", "64")])
def test_what_was_asked_for_is_refused_with_the_limit_or_made_to_do(home: Path, options: tuple[str, ...]) -> None:
    for megabytes in (180, 240, 320, 450, 700):
        done = limited(home, megabytes, *RUN, *options)
        if done.returncode:
            assert "ulimit -v" in refusal(done), megabytes
        else:
            assert done.stdout and done.stderr in ("", note(done))


def test_a_limit_of_data_counts_too(home: Path) -> None:
    for megabytes in (30, 50, 60, 80):
        assert "(ulimit -d)" in refusal(limited(home, megabytes, *PLAN, kind="d"))
    assert "limit" in refusal(limited(home, 100, *RUN, kind="d"))
    assert output(limited(home, 400, *RUN, kind="d"))


def test_help_needs_no_more_than_python(home: Path) -> None:
    assert output(limited(home, 80, "--help")).startswith("usage: millstream")


def test_a_peer_may_use_all_threads(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    (home / "peer.py").write_text(
        "import json, os\n"
        "seen = 1 + ('OPENBLAS_NUM_THREADS' in os.environ)\n"
        "print(json.dumps(dict.fromkeys(('prefill_tok_s', 'decode_short_tok_s', 'decode_long_tok_s'), seen)))"
    )
    peer = f"'{sys.executable}' '{home / 'peer.py'}'"
    short = ("--prompt-tokens", "8", "--tokens", "2", "--rounds", "1", "--json")
    told = output(limited(home, 900, "bench", "starter", *short, "--vs", peer))
    assert json.loads(told)["decode_long_tok_s"]["peer"] == 1
