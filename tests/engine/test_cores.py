"""Which processors count, by made trees of the files in which Linux tells, and by records as Windows gives them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import psutil
import pytest

from engine import cores
from engine.cgroups import cpu_quota
from engine.checks import MAX_THREADS
from engine.cores import default_threads, linux_cores, windows_cores


class Machine:
    """A root folder with the files of one machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpus: list[int] = []

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def add(self, count: int, threads: int = 1, capacity: int | None = None) -> None:
        """So many more cores; their numbers begin at 0 again, as in a cluster of its own."""
        for core in range(count):
            first = len(self.cpus)
            shared = f"{first}-{first + threads - 1}" if threads > 1 else f"{first}"
            for _ in range(threads):
                cpu = f"sys/devices/system/cpu/cpu{len(self.cpus)}"
                self.write(f"{cpu}/topology/core_id", core)
                self.write(f"{cpu}/topology/core_cpus_list", shared)
                if capacity is not None:
                    self.write(f"{cpu}/cpu_capacity", capacity)
                self.cpus.append(len(self.cpus))

    def cores(self, *allowed: int) -> int | None:
        return linux_cores(self.root, allowed or self.cpus)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_every_core_of_a_plain_machine_counts(machine: Machine) -> None:
    machine.add(2)
    assert machine.cores() == 2
    assert machine.cores(1) == 1


def test_two_threads_of_one_core_count_once(machine: Machine) -> None:
    machine.add(8, threads=2)
    assert machine.cores() == 8
    assert machine.cores(0, 1, 2) == 2
    assert machine.cores(0, 2, 4, 6) == 4


def test_processors_far_apart_may_share_a_core_and_older_kernels_say_so_elsewhere(machine: Machine) -> None:
    for cpu in range(4):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 2},{cpu % 2 + 2}")
    assert machine.cores(0, 1, 2, 3) == 2


def test_hybrid_intel_leaves_its_efficiency_cores_alone(machine: Machine) -> None:
    machine.add(6, threads=2)
    machine.add(8)
    machine.write("sys/devices/cpu_core/cpus", "0-11")
    machine.write("sys/devices/cpu_atom/cpus", "12-19")
    assert machine.cores() == 6
    assert machine.cores(2, 3, 4, 13) == 2
    assert machine.cores(12, 13, 14) == 3


def test_arm_leaves_its_little_cores_alone_and_nothing_else(machine: Machine) -> None:
    machine.add(4, capacity=446)
    machine.add(4, capacity=1024)
    assert machine.cores() == 4
    assert machine.cores(0, 1, 6) == 1
    assert machine.cores(0, 1) == 2


def test_of_three_classes_the_lowest_alone_is_left_out(machine: Machine) -> None:
    machine.add(1, capacity=1024)
    machine.add(3, capacity=853)
    machine.add(4, capacity=282)
    assert machine.cores() == 4


def test_cores_that_differ_a_little_are_all_performance_cores(machine: Machine) -> None:
    machine.add(10, capacity=871)
    machine.add(2, capacity=1024)
    assert machine.cores() == 12
    machine.write("sys/devices/system/cpu/cpu0/cpu_capacity", "not a number")
    assert machine.cores() == 12


def test_a_system_that_tells_nothing_is_no_answer(machine: Machine) -> None:
    assert machine.cores(0, 1) is None


V2 = {"proc/self/cgroup": "0::/a.slice/b.scope"}
V1 = {"proc/self/cgroup": "3:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/\n0::/"}
QUOTAS: dict[str, tuple[dict[str, str], float | None]] = {
    "no groups": ({}, None),
    "v2, none": (V2 | {"sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000"}, None),
    "v2, one and a half": (V2 | {"sys/fs/cgroup/a.slice/b.scope/cpu.max": "150000 100000"}, 1.5),
    "v2, of the group above": (
        V2
        | {"sys/fs/cgroup/a.slice/cpu.max": "50000 100000", "sys/fs/cgroup/a.slice/b.scope/cpu.max": "300000 100000"},
        0.5,
    ),
    "v2, inside a container": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 200000"}, 2.0),
    "v2, outside the container": ({"proc/self/cgroup": "0::/../../b", "sys/fs/cgroup/cpu.max": "400000 200000"}, 2.0),
    "v2, broken": (V2 | {"sys/fs/cgroup/cpu.max": "1 0", "sys/fs/cgroup/a.slice/cpu.max": "many"}, None),
    "v1, none": (
        V1 | {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000"},
        None,
    ),
    "v1, one and a half": (
        V1 | {"sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "75000", "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "50000"},
        1.5,
    ),
    "v1, inside a container": (
        V1
        | {
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        3.0,
    ),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_the_time_that_a_control_group_grants(machine: Machine, case: str) -> None:
    files, quota = QUOTAS[case]
    for path, text in files.items():
        machine.write(path, text)
    assert cpu_quota(machine.root) == quota


def records(*each: tuple[int, int, int]) -> bytes:
    """SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX of cores: efficiency class, group and mask."""
    return b"".join(
        struct.pack("<IIBB20sHQH6s", 0, 48, 0, efficiency, b"", 1, mask, group, b"") for efficiency, group, mask in each
    )


def test_windows_tells_cores_by_class() -> None:
    plain = records(*((0, 0, 0b11 << 2 * core) for core in range(4)))
    assert windows_cores(plain, range(8)) == 4
    assert windows_cores(plain, (2, 3)) == 1
    hybrid = records(*((1, 0, 0b11 << 2 * core) for core in range(2)), *((0, 0, 1 << core) for core in (4, 5, 6)))
    assert windows_cores(hybrid, range(7)) == 2
    assert windows_cores(hybrid, (0, 5)) == 1
    assert windows_cores(hybrid, (5, 6)) == 2
    three = records((2, 0, 1), (1, 0, 2), (1, 0, 4), (0, 0, 8))
    assert windows_cores(three, range(4)) == 3


def test_windows_numbers_processors_within_a_group() -> None:
    two_groups = records(*((0, group, 1 << core) for group in range(2) for core in range(64)))
    assert windows_cores(two_groups, range(8)) == 128


def test_a_record_that_is_cut_short_ends_the_count() -> None:
    whole = records((0, 0, 1), (0, 0, 2))
    assert windows_cores(whole[:-1], range(2)) == 1
    assert windows_cores(b"", range(2)) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads the files of Linux")
def test_the_default_keeps_to_what_the_process_may_use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = list(range(4))
    monkeypatch.setattr(cores, "ROOT", machine.root)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda process: allowed)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 3)
    assert default_threads() == 3  # no file tells anything
    machine.add(4)
    assert default_threads() == 4
    machine.write("proc/self/cgroup", "0::/")
    machine.write("sys/fs/cgroup/cpu.max", "150000 100000")
    assert default_threads() == 2
    machine.write("sys/fs/cgroup/cpu.max", "1000 100000")
    assert default_threads() == 1
    machine.write("sys/fs/cgroup/cpu.max", "max 100000")
    allowed[:] = [3]
    assert default_threads() == 1
    machine.add(400)
    allowed[:] = machine.cpus
    assert default_threads() == MAX_THREADS


def test_this_machine_has_cores() -> None:
    assert 1 <= default_threads() <= (psutil.cpu_count() or MAX_THREADS)
