from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.plain_reads import plain_reads
from bench.streaming import PLAIN, Reads, Round, floor_seconds, report, several
from tests.outside import linux

pytestmark = linux


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "weights"
    path.write_bytes(os.urandom(1 << 20) + b"end")
    return path


def test_a_size_is_read_as_the_program_reads_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.streaming", "model.gguf", "--ram", "256 apples"], capture_output=True, text=True
    )
    assert done.returncode == 2 and '"256 apples" is not a size: write a number and a unit' in done.stderr


def test_a_model_that_is_not_there_is_one_sentence(folder: Path) -> None:
    command = [sys.executable, "-m", "bench.streaming", str(folder / "none.gguf"), "--ram", "64MB"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("bench.streaming: ") and done.stderr.count("\n") == 1


def test_plain_reads_take_time_and_refuse_what_is_not_there(file: Path) -> None:
    reads = [(0, 65536), (123, 70000), ((1 << 20) - 10, 13)]
    assert floor_seconds(file, reads, 2) > 0
    assert floor_seconds(file, reads, 2, room=1 << 20, used=True) > 0
    with pytest.raises(SystemExit, match="the file ends before byte 2097152"):
        floor_seconds(file, [(2 << 20, 65536)], 1)
    with pytest.raises(SystemExit, match="Is a directory"):
        plain_reads(str(file.parent), [[0, 65536]], 2, direct=False)


def test_plain_reads_stand_alone(file: Path, folder: Path) -> None:
    """Without the checkout, and without packages."""
    job = json.dumps({"path": str(file), "reads": [[0, 4096]], "threads": 1, "direct": False})
    command = [sys.executable, "-I", "-S", str(PLAIN)]
    done = subprocess.run(command, input=job, capture_output=True, text=True, cwd=folder)
    assert float(done.stdout) >= 0 and done.stderr == ""


def test_reads_of_the_file_are_recorded_and_no_others(file: Path, folder: Path) -> None:
    other = folder / "other"
    other.write_bytes(bytes(100))
    room, reads, before = bytearray(50), Reads(file), os.preadv
    with file.open("rb") as ours, other.open("rb") as theirs, reads.recording():
        for offset in (0, 500, 200):
            os.preadv(ours.fileno(), [room], offset)
        os.preadv(theirs.fileno(), [room], 0)
        os.preadv(ours.fileno(), [room], (1 << 20) + 1)
    assert os.preadv is before
    assert reads.made == [(0, 50), (500, 50), (200, 50), ((1 << 20) + 1, 2)]
    assert reads.last(40) == [(200, 50), ((1 << 20) + 1, 2)]


def test_a_report_has_the_medians_of_ratios() -> None:
    made = [
        Round(1e9, floor, 0.97, 1.0, 1e9, 5e5, 0, cached) for floor, cached in ((0.8, 0), (0.95, 2_000_000), (0.9, 0))
    ]
    told = report(made, 0.25)
    assert (told["ratio"], told["beyond_floor"], told["stall_share"]) == (0.9, 0.1, 0.25)
    assert told["used_ratio"] == 0.97
    assert (told["floor_gb_s"], told["mean_read_kb"], told["cached_mb"]) == (1.0, 500.0, 2.0)


def test_lists_are_read() -> None:
    assert several("auto,2,16") == [None, 2, 16]
