"""What becomes of a program whose model's file is changed, lost or taken away while it streams from it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench.make_big import Shape, write_big
from tests.bytewise import bytewise
from tests.outside import ROOT, Watched, bytes_read, linux, millstream, watch

pytestmark = linux

SHAPE = Shape(layers=16, hidden=512, heads=8, kv_heads=2, head_dim=64, ffn=2048, tied=True, feed_forward="Q6_K")
OPTIONS = ("--ram", "8MB", "--context", 256, "--chunk", 16, "--threads", 2)
QUESTION = ("-p", "The mill", "-n", 24, "--json")
BEFORE = 40 << 20
"""More than Python and the libraries read from their own files."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_big(tmp_path_factory.mktemp("model") / "model.gguf", SHAPE, bytewise)


@pytest.fixture
def model(original: Path, folder: Path) -> Path:
    return Path(shutil.copy(original, folder / "mill.gguf"))


@pytest.fixture(scope="module")
def answer(original: Path) -> object:
    return watch(millstream("fingerprint", original, *OPTIONS, *QUESTION), original).json()


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    """In its second half, byte by byte, its length as it was."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(np.random.default_rng(3).bytes(size - size // 2))


def replaced(path: Path) -> None:
    other = path.with_name("other.gguf")
    other.write_bytes(bytes(path.stat().st_size))
    os.replace(other, path)


def unlinked(path: Path) -> None:
    path.unlink()


def locked(path: Path) -> None:
    path.chmod(0)


def folder_renamed(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def run(command: list[str], model: Path, strike: Callable[[int], None]) -> tuple[Watched, float]:
    """Strike once the process reads the file a second time: → how it ended, and how many seconds later."""
    struck: list[float] = []
    file = model.stat().st_size

    def look(pid: int) -> None:
        if not struck and bytes_read(pid) > BEFORE + 1.5 * file:
            strike(pid)
            struck.append(time.monotonic())

    ended = watch(command, model, meanwhile=look)
    assert struck, f"it ended before it streamed: {ended.errors}"
    return ended, time.monotonic() - struck[0]


def check_sentence(ended: Watched, name: str) -> None:
    assert ended.code == 2, ended
    assert ended.errors.startswith("millstream: ") and ended.errors.count("\n") == 1
    assert name in ended.errors and "Traceback" not in ended.errors


@pytest.mark.parametrize("fault", [truncated, emptied, overwritten])
def test_a_file_that_is_written_to_ends_the_answer_with_a_sentence(fault: Callable[[Path], None], model: Path) -> None:
    command = millstream("fingerprint", model, *OPTIONS, *QUESTION)
    ended, seconds = run(command, model, lambda _: fault(model))
    check_sentence(ended, model.name)
    assert ended.out == "" and seconds < 20


@pytest.mark.parametrize("fault", [replaced, unlinked, locked, folder_renamed])
def test_a_file_that_loses_its_name_or_permissions_is_read_on(
    fault: Callable[[Path], None], model: Path, answer: object
) -> None:
    command = millstream("fingerprint", model, *OPTIONS, *QUESTION)
    ended, _ = run(command, model, lambda _: fault(model))
    assert ended.json() == answer


def test_a_reply_in_progress_keeps_what_was_said(model: Path) -> None:
    command = millstream("run", model, *OPTIONS, "--raw", "-p", "The mill", "--temperature", 0, "--max-tokens", 200)
    ended, _ = run(command, model, lambda _: truncated(model))
    assert ended.code == 2 and ended.out
    assert ended.errors.startswith("millstream: ") and model.name in ended.errors.splitlines()[-1]


def test_an_interrupt_ends_a_streaming_program_at_once(model: Path) -> None:
    command = millstream("fingerprint", model, *OPTIONS, "-p", "The mill", "-n", 200)
    ended, seconds = run(command, model, lambda pid: os.kill(pid, signal.SIGINT))
    assert (ended.code, ended.out, ended.errors) == (130, "", "")
    assert seconds < 10


def test_what_is_no_file_is_refused_and_never_waited_for(folder: Path) -> None:
    pipe = folder / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        done = subprocess.run(
            millstream("fingerprint", path, *OPTIONS, *QUESTION), cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert done.stderr.startswith("millstream: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("fault", [truncated, unlinked, locked])
def test_a_fault_before_loading_is_a_sentence_too(fault: Callable[[Path], None], model: Path) -> None:
    if fault is locked and os.geteuid() == 0:
        pytest.skip("nothing is locked for root")
    fault(model)
    done = subprocess.run(
        millstream("fingerprint", model, *OPTIONS, *QUESTION), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("millstream: ") and done.stderr.count("\n") == 1
