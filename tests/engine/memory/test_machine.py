from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import psutil
import pytest

from engine.buffers import U8
from engine.cancel import Cancel, Cancelled
from engine.cgroups import memory_limit, memory_room
from engine.errors import BudgetError, ModelFileError
from engine.memory import machine
from engine.memory.figures import Dated, Drive, Speed, Speeds, keep
from engine.memory.machine import Rate, drive_of, fewest_as_good, free_memory, kept_drive, measure_drive, timed

SPEEDS = Speeds({"Q8_0": Speed(1e10, 1e11)}, 1e-6)
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
def test_figures_that_cannot_be_kept_are_told_all_the_same(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert drive_of(model, tmp_path / "file" / "figures.json") == DRIVE


def test_kernels_are_measured_once_for_each_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.memory.speeds.SECONDS", 0.001)
    kept = tmp_path / "figures.json"
    assert machine.kept_speeds(2, kept) is None
    told = machine.speeds_of(2, ["Q8_0"], kept)
    assert told is not None and set(told.encodings) == {"Q8_0"}
    assert machine.speeds_of(2, ["Q8_0"], kept) == machine.kept_speeds(2, kept) == told
    more = machine.speeds_of(2, ["Q8_0", "Q4_K"], kept)
    assert more is not None and set(more.encodings) == {"Q8_0", "Q4_K"} and more == machine.kept_speeds(2, kept)
    assert machine.speeds_of(2, ["Q4_K"], kept, remeasure=True) != more
    assert machine.kept_speeds(1, kept) is None


def test_the_age_of_the_older_figure_is_told(model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "figures.json"
    device = str(model.stat().st_dev)
    assert machine.measured_at(model, 2, kept) is None
    keep(kept, lambda figures: figures.drives.update({device: Dated(DRIVE, 2000)}))
    keep(kept, lambda figures: figures.speeds.update({2: Dated(SPEEDS, 1000), 1: Dated(SPEEDS, 10)}))
    assert (machine.measured_at(model, 2, kept), machine.measured_at(model, 3, kept)) == (1000, 2000)


def test_a_file_that_changes_while_it_is_measured_is_named_and_no_tensor(model: Path) -> None:
    with machine._Reader(model) as reader:
        os.utime(model, (1, 1))
        with pytest.raises(ModelFileError) as refused:
            timed(reader, 1, 1 << 16, 0.001)
    assert f"{model} was changed while in use" in str(refused.value) and "tensor" not in str(refused.value)


def test_threads_or_memory_that_are_refused_while_a_drive_is_measured_get_a_sentence(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, []

    def two_at_most(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    def none(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with machine._Reader(model) as reader, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", two_at_most)
        with pytest.raises(BudgetError, match="refused the memory to measure the disk"):
            timed(reader, 4, 1 << 16, 60)
        patched.undo()
        patched.setattr(machine, "mapped", none)
        with pytest.raises(BudgetError, match="refused the memory to measure the disk"):
            timed(reader, 2, 1 << 16, 60)


def test_measuring_can_be_cancelled_even_where_a_read_hangs(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)  # so that neither opening blocks nor reading ends
    cancel, hung = Cancel(), threading.Event()

    def hang(reader: machine._Reader, into: U8, offset: int) -> None:
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
