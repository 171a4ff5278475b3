"""A Hub with models in it, and the program over a library of its own, in a folder that is not ASCII."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli import main
from registry.tokens import VARIABLES
from tests.app.running import ROOT, WAIT, Program
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import model_bytes

REPOSITORY = "labs/Tiny-GGUF"
NO_KEYRING = "keyring.backends.fail.Keyring"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Of this process's environment, and so of those that it starts."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", NO_KEYRING)
    with HubServer() as hub:
        hub.use(monkeypatch)
        hub.add(
            REPOSITORY,
            {
                "Tiny-Q4_K_M.gguf": model_bytes(tmp_path, 3),
                "Tiny-Q8_0.gguf": model_bytes(tmp_path, 2, seed=1),
                "mmproj-Tiny-F16.gguf": model_bytes(tmp_path, 0.5, "clip", seed=2),
                "mmproj-Tiny-F32.gguf": model_bytes(tmp_path, 1, "clip", seed=3),
            },
            downloads=12345,
        )
        yield hub


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def models(home: Path) -> Path:
    """The library's folder, which need not be there."""
    return home / "models"


@pytest.fixture
def start(home: Path) -> Callable[..., subprocess.Popen[str]]:
    """Begins the program in a process of its own. No stream is a terminal."""

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            encoding="utf-8",
            cwd=ROOT,
            env=os.environ | environment,
        )

    return run


@pytest.fixture
def outside(start: Callable[..., subprocess.Popen[str]]) -> Program:
    """Runs the program to its end in a process of its own."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        with start(*arguments, **environment) as process:
            said = process.communicate(timeout=WAIT)
        return subprocess.CompletedProcess(arguments, process.returncode, *said)

    return run


@pytest.fixture
def inside(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The same in this process."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run
