from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from engine.memory.figures import MOST_BYTES, Dated, Drive, Figures, Speed, Speeds, keep, load, now

DRIVE = Drive(bandwidth=1.5e9, latency=8e-5, threads=8, block_bytes=1 << 18)
SPEEDS = Speeds({"Q8_0": Speed(passed=1e10, multiply_adds=1e11)}, walk=0.0)
KEPT = Figures({"2049": Dated(DRIVE, 1_700_000_000)}, {2: Dated(SPEEDS, 1_700_000_001)})


def write(file: Path) -> Path:
    keep(file, lambda figures: (figures.drives.update(KEPT.drives), figures.speeds.update(KEPT.speeds)))
    return file


def test_what_was_kept_is_there_again_with_its_time(tmp_path: Path) -> None:
    file = write(tmp_path / "folder" / "figures.json")
    assert load(file) == KEPT
    before = int(time.time())
    keep(file, lambda figures: figures.speeds.update({4: now(SPEEDS)}))
    assert load(file).drives == KEPT.drives and before <= load(file).speeds[4].when <= time.time()
    assert os.listdir(file.parent) == ["figures.json"]


def test_without_a_file_nothing_is_kept() -> None:
    keep(None, lambda figures: figures.speeds.update({4: now(SPEEDS)}))
    assert load(None) == Figures()


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"version": 3}', "[" * 100_000, "9" * 10_000, "\udcff"])
def test_what_is_no_file_of_figures_holds_none(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    file.write_text(damage, "utf-8", "surrogateescape")
    assert load(file) == Figures()
    assert load(write(file)) == KEPT


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), 2),
        (("drives",), []),
        (("speeds",), 5),
        (("drives", "2049"), None),
        (("drives", "2049", "bandwidth"), -1),
        (("drives", "2049", "bandwidth"), 1e15),
        (("drives", "2049", "bandwidth"), 1e-300),
        (("drives", "2049", "bandwidth"), True),
        (("drives", "2049", "latency"), float("nan")),
        (("drives", "2049", "latency"), 0),
        (("drives", "2049", "block_bytes"), 100),
        (("drives", "2049", "block_bytes"), 8 << 20),
        (("drives", "2049", "threads"), 1e99),
        (("drives", "2049", "threads"), 17),
        (("drives", "2049", "when"), 0),
        (("drives", "2049", "when"), 1 << 41),
        (("speeds", "2", "when"), float("inf")),
        (("speeds", "2", "walk"), -1e-6),
        (("speeds", "2", "encodings"), {}),
        (("speeds", "2", "encodings", "Q8_0", "passed"), "fast"),
        (("speeds", "2", "encodings", "Q8_0", "multiply_adds"), 0),
    ],
)
def test_figures_that_cannot_be_are_as_if_there_were_none(
    place: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    file = write(tmp_path / "figures.json")
    content = json.loads(file.read_text())
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    file.write_text(json.dumps(content))
    assert load(file) == Figures()


def test_a_file_that_is_larger_than_figures_are_is_not_read(tmp_path: Path) -> None:
    file = write(tmp_path / "figures.json")
    text = file.read_text()
    file.write_text(text + " " * (MOST_BYTES - len(text)))
    assert load(file) == KEPT
    file.write_text(text + " " * (MOST_BYTES - len(text) + 1))
    assert load(file) == Figures()


@pytest.mark.skipif(sys.platform == "win32", reason="no fifos, no /dev/zero")
@pytest.mark.parametrize("kind", ["fifo", "endless", "folder"])
def test_what_is_no_file_is_neither_waited_for_nor_read_and_makes_way(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "endless":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    assert load(file) == Figures()
    assert load(write(file)) == (Figures() if kind == "folder" else KEPT)
