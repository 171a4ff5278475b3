"""The program for the tests of the command line: in this process, or in one of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from tests.app.running import ROOT, WAIT, Program
from tests.tiny_chat import write_tiny_chat


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose library holds one tiny model, "tiny"."""
    home = tmp_path_factory.mktemp("山 é home")
    (home / "models").mkdir()
    write_tiny_chat(home / "models" / "tiny.gguf")
    return home


@pytest.fixture
def program(library: Path) -> Program:
    """Runs the program to its end in a process of its own. No stream is a terminal."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "app", *arguments],
            input="",
            capture_output=True,
            encoding="utf-8",
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library)},
            timeout=WAIT,
        )

    return run


@pytest.fixture
def millstream(library: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The same in this process, which spares the start of an interpreter."""

    def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setenv("MILLSTREAM_HOME", str(library))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run
