from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from pathlib import Path

import psutil
import pytest

from engine.cancel import Cancel, Cancelled
from engine.cgroups import memory_limit, memory_room
from engine.errors import ModelFileError
from engine.memory import machine
from engine.memory.machine import Drive, Rate, drive_of, fewest_as_good, free_memory, kept_drive, measure_drive, timed

DRIVE = Drive(bandwidth=1.5e9, latency=8e-5, threads=8, block_bytes=1 << 18)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that is no whole number of blocks long."""
    path = tmp_path / "model"
    path.write_bytes(os.urandom((3 << 20) + 123))
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "measure_drive", lambda file, most, cancel: DRIVE)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return root


V2 = {"proc/self/cgroup": "0::/outer/inner"}
V1 = {"proc/self/cgroup": "9:cpu:/\n4:memory:/box\n0::/"}
BOX = "sys/fs/cgroup/memory/box/memory"
OUTER, INNER = ("sys/fs/cgroup/outer/memory", "sys/fs/cgroup/outer/inner/memory")
UNLIMITED = str(2**63 - 4096)


@pytest.mark.parametrize(
    ("files", "limit", "room"),
    [
        ({}, None, None),
        (V2, None, None),
        (V2 | {f"{INNER}.max": "max", f"{INNER}.current": "5000"}, None, None),
        (V2 | {f"{INNER}.max": "9000", f"{INNER}.current": "5000"}, 9000, 4000),
        (
            V2 | {f"{INNER}.max": "9000", f"{INNER}.current": "5000", f"{INNER}.stat": "anon 1\ninactive_file 1500\n"},
            9000,
            5500,
        ),
        (
            V2
            | {f"{INNER}.max": "9000", f"{INNER}.current": "5000", f"{OUTER}.max": "8000", f"{OUTER}.current": "7900"},
            8000,
            100,
        ),
        (V2 | {f"{INNER}.max": "9000", f"{INNER}.current": "9900"}, 9000, 0),
        (V2 | {f"{INNER}.max": "what?", f"{INNER}.current": "5000"}, None, None),
        (V1 | {f"{BOX}.limit_in_bytes": UNLIMITED, f"{BOX}.usage_in_bytes": "5000"}, None, None),
        (V1 | {f"{BOX}.limit_in_bytes": "9000", f"{BOX}.usage_in_bytes": "5000"}, 9000, 4000),
        (
            V1
            | {
                f"{BOX}.limit_in_bytes": "9000",
                f"{BOX}.usage_in_bytes": "5000",
                f"{BOX}.stat": "inactive_file 1\ntotal_inactive_file 2000",
            },
            9000,
            6000,
        ),
        (
            {"proc/self/cgroup": "4:memory:/../elsewhere"}
            | {"sys/fs/cgroup/memory/memory.limit_in_bytes": "700", "sys/fs/cgroup/memory/memory.usage_in_bytes": "70"},
            700,
            630,
        ),
    ],
)
def test_the_limits_of_control_groups_bound_what_is_free(
    files: dict[str, str], limit: int | None, room: int | None, tmp_path: Path
) -> None:
    root = write(tmp_path, files)
    assert (memory_limit(root), memory_room(root)) == (limit, room)
    if room is None:
        assert free_memory(root) > 100 << 20
    else:
        assert free_memory(root) == room
        assert machine.total_memory(root) == limit


def test_without_limits_what_the_system_has_is_free(tmp_path: Path) -> None:
    assert machine.total_memory(tmp_path) == psutil.virtual_memory().total
    assert free_memory(tmp_path) <= psutil.virtual_memory().total


def test_the_smallest_that_is_nearly_as_good_is_chosen() -> None:
    assert fewest_as_good({1: 50.0, 2: 98.0, 4: 100.0, 8: 99.0}, 0.97) == 2
    assert fewest_as_good({1: 50.0, 2: 96.9, 4: 100.0, 8: 99.0}, 0.97) == 4
    assert fewest_as_good({64: 10.0}, 0.9) == 64


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process asked to read")
@pytest.mark.parametrize("threads", [1, 3])
def test_a_rate_counts_what_was_read(threads: int, model: Path) -> None:
    def asked() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    with machine._Reader(model) as reader:
        before, mine = asked(), len(Path("/proc/self/io").read_bytes())
        rate = timed(reader, threads, 1 << 18, 0.02)
        read = asked() - before
    assert rate.blocks >= threads and rate.nbytes == rate.blocks << 18
    assert rate.nbytes <= read <= rate.nbytes + 16 * mine
    assert rate.bandwidth == rate.nbytes / rate.seconds


def test_time_is_taken_from_the_clock(model: Path) -> None:
    ticks = iter(range(1000))
    with machine._Reader(model) as reader:
        # One look for the end, one for the start, then one before each block and before none.
        rate = timed(reader, 1, 1 << 16, 5, clock=lambda: float(next(ticks)))
    assert rate == Rate(nbytes=3 << 16, blocks=3, seconds=5.0)


def test_blocks_lie_within_the_file(model: Path) -> None:
    with machine._Reader(model) as reader:
        assert [reader.fitting(size) for size in (4096, 1 << 20, 8 << 20)] == [4096, 1 << 20, 3 << 20]
        for block in (4096, 1 << 20, 3 << 20):
            assert (reader.places(block) - 1) * 4096 + block <= model.stat().st_size
            assert reader.places(block) * 4096 + block > model.stat().st_size // 4096 * 4096


def test_a_drive_is_measured_by_its_own_file(model: Path) -> None:
    drive = measure_drive(model, seconds=0.002)
    assert drive.threads in machine.THREADS and drive.bandwidth > 0 and drive.latency > 0
    assert 4096 <= drive.block_bytes <= 3 << 20 and drive.block_bytes % 4096 == 0


@pytest.mark.parametrize("nbytes", [0, 5, 4095, 5000])
def test_a_file_smaller_than_a_block_is_measured_too(nbytes: int, tmp_path: Path) -> None:
    (tmp_path / "tiny").write_bytes(b"x" * nbytes)
    assert measure_drive(tmp_path / "tiny", seconds=0.001).block_bytes == 4096


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    for ask in (measure_drive, drive_of):
        with pytest.raises(ModelFileError, match=r"gone\.gguf"):
            ask(tmp_path / "gone.gguf")


@pytest.mark.usefixtures("quick")
def test_figures_are_kept_by_device_and_measured_again_on_request(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "folder" / "figures.json"
    assert kept_drive(model, kept) is None
    assert drive_of(model, kept) == DRIVE == kept_drive(model, kept)
    other = Drive(9e8, 1e-4, 2, 1 << 20)
    monkeypatch.setattr(machine, "measure_drive", lambda file, most, cancel: other)
    assert drive_of(model, kept) == DRIVE
    assert drive_of(model, kept, remeasure=True) == other == kept_drive(model, kept)
    content = json.loads(kept.read_text())
    assert list(content["drives"]) == [str(model.stat().st_dev)]
    content["drives"] = {"1234567": content["drives"].popitem()[1]}
    kept.write_text(json.dumps(content))
    assert kept_drive(model, kept) is None
    drive_of(model, kept)
    assert len(json.loads(kept.read_text())["drives"]) == 2
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2}',
        '{"version": 1, "drives": [], "memory": {}}',
        '{"version": 1, "drives": {"DEVICE": {"bandwidth": -1, "latency": 1e-4, "threads": 1, "block_bytes": 65536}}, '
        '"memory": {}}',
        '{"version": 1, "drives": {"DEVICE": {"bandwidth": 1e9, "latency": NaN, "threads": 1, "block_bytes": 65536}}, '
        '"memory": {}}',
        '{"version": 1, "drives": {"DEVICE": {"bandwidth": 1e9, "latency": 1e-4, "threads": 1, "block_bytes": 100}}, '
        '"memory": {}}',
        '{"version": 1, "drives": {"DEVICE": {"bandwidth": 1e9, "latency": 1e-4, "threads": 1e99, "block_bytes": 4096}}'
        ', "memory": {}}',
    ],
)
def test_damaged_figures_are_as_if_there_were_none(damage: str, model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "figures.json"
    kept.write_text(damage.replace("DEVICE", str(model.stat().st_dev)))
    assert kept_drive(model, kept) is None
    assert drive_of(model, kept) == DRIVE == kept_drive(model, kept)


@pytest.mark.usefixtures("quick")
def test_figures_that_cannot_be_kept_are_told_all_the_same(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert drive_of(model, tmp_path / "file" / "figures.json") == DRIVE


def test_memory_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.memory.floors.SECONDS", 0.001)
    kept = tmp_path / "figures.json"
    assert machine.kept_memory(2, kept) is None
    told = machine.memory_of(2, kept)
    assert told is not None and told > 0
    assert machine.memory_of(2, kept) == machine.kept_memory(2, kept) == told
    assert machine.kept_memory(1, kept) is None


def test_measuring_can_be_cancelled_even_where_a_read_hangs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)  # so that neither opening blocks nor reading ends
    cancel, hung = Cancel(), threading.Event()

    def hang(reader: machine._Reader, into: mmap.mmap, offset: int) -> None:
        hung.set()
        os.read(fifo, 1)

    monkeypatch.setattr(machine._Reader, "read", hang)
    threading.Thread(target=lambda: (hung.wait(), cancel.set())).start()
    with pytest.raises(Cancelled):
        drive_of(model, tmp_path / "figures.json", cancel=cancel)
    assert not (tmp_path / "figures.json").exists()
    os.write(fifo, b"." * 16)


def test_measuring_takes_no_more_memory_than_it_is_granted(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def noted(reader: object, threads: int, block: int, seconds: float, cancel: Cancel | None) -> Rate:
        taken.append(threads * block)
        return Rate(threads * block, threads, 1.0)  # the more the better

    monkeypatch.setattr(machine, "timed", noted)
    for granted, most in ((1, machine.LEAST), (24 << 20, 24 << 20), (1 << 40, machine.MOST)):
        taken.clear()
        measure_drive(model, most=granted)
        assert most // 2 <= max(taken) <= most
