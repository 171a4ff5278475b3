"""System, processor, memory, battery: each by what the machine tells."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from registry.probe.battery import battery
from registry.probe.memory import memory
from registry.probe.processor import linux_cores, linux_instructions, linux_name, macos_instructions, processor
from registry.probe.system import linux_version, system
from registry.probe.tree import Battery
from tests.registry.probe.trees import write

GIB = 1 << 30


def test_linux_is_told_of_as_the_distribution_calls_itself(tmp_path: Path) -> None:
    write(tmp_path, {"etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n'})
    assert linux_version(tmp_path) == "Debian GNU/Linux 13 (trixie)"
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.12.33+deb13-amd64\n"})
    assert linux_version(tmp_path) == "Debian GNU/Linux 13 (trixie), kernel 6.12.33+deb13-amd64"
    write(tmp_path, {"etc/os-release": 'PRETTY_NAME="never closed\n'})
    assert linux_version(tmp_path) == "kernel 6.12.33+deb13-amd64"


def test_this_systems_versions_are_those_of_python_and_the_program() -> None:
    assert system(Path("/")).python == ".".join(map(str, sys.version_info[:3]))


def test_a_processors_name_and_instructions_are_read_from_cpuinfo(tmp_path: Path) -> None:
    flags = "fpu avx f16c fma avx2 bmi1 bmi2 avx512f avx512_vnni avx512ifma"
    block = f"processor\t: 0\nmodel name\t: AMD Ryzen 7  7840U\nflags\t\t: {flags}\n\n"
    write(tmp_path, {"proc/cpuinfo": block + "processor\t: 1\nmodel name\t: another\n"})
    assert linux_name(tmp_path) == "AMD Ryzen 7 7840U"
    assert linux_instructions(tmp_path) == ("avx", "f16c", "fma", "avx2", "bmi2", "avx512f", "avx512_vnni")


def test_an_arm_board_is_named_by_its_model(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\n"})
    assert linux_instructions(tmp_path) == ("asimd", "asimddp")
    assert linux_name(tmp_path) == ""
    write(tmp_path, {"proc/device-tree/model": b"Raspberry Pi 5 Model B Rev 1.0\0"})
    assert linux_name(tmp_path) == "Raspberry Pi 5 Model B Rev 1.0"


def test_cores_are_counted_among_the_processors_that_may_be_used(tmp_path: Path) -> None:
    for cpu in range(8):
        pair = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n"
        write(tmp_path, {f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list": pair})
    assert linux_cores(tmp_path, range(8)) == 4
    assert linux_cores(tmp_path, [1, 2, 3]) == 2
    assert linux_cores(tmp_path / "nowhere", range(8)) is None


def test_macos_names_its_instructions_by_sysctl() -> None:
    told = {"hw.optional.avx2_0": 1, "hw.optional.avx512f": 0, "hw.optional.arm.FEAT_DotProd": 1}
    assert macos_instructions(told.get) == ("avx2", "asimddp")


def test_this_processor_has_cores_and_the_kernels_that_are_chosen_for_it() -> None:
    from engine.kernels.native import library

    found, problems = processor(Path("/"))
    assert 1 <= found.cores <= found.logical <= (psutil.cpu_count() or 1)
    assert 1 <= found.threads <= found.cores
    assert (found.kernels, problems) == (library.load()[0], ())


def test_kernels_that_cannot_be_loaded_are_a_problem_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_ISA", "z80")
    found, (problem,) = processor(Path("/"))
    assert found.kernels == "" and "z80" in problem.sentence and problem.part == "processor"


def test_slow_kernels_are_a_problem_unless_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.probe.processor.load", lambda: ("portable", None))
    monkeypatch.delenv("MILLSTREAM_ISA", raising=False)
    _, (problem,) = processor(Path("/"))
    assert "AVX2" in problem.sentence
    monkeypatch.setenv("MILLSTREAM_ISA", "portable")
    assert processor(Path("/"))[1] == ()


def test_a_containers_quota_is_told(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"})
    found, _ = processor(tmp_path)
    assert found.quota == (2.0 if sys.platform == "linux" else None)


def test_memory_is_what_a_container_grants(tmp_path: Path) -> None:
    limits = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/a/b/memory.current": f"{GIB // 4}\n",
        "sys/fs/cgroup/a/b/memory.stat": f"inactive_file {GIB // 8}\n",
    }
    write(tmp_path, limits)
    told = memory(tmp_path)
    assert (told.total, told.free) == (GIB, GIB - GIB // 8)
    assert told.installed == psutil.virtual_memory().total > told.total


def test_without_a_limit_memory_is_the_machines(tmp_path: Path) -> None:
    told = memory(tmp_path)
    assert told.total == told.installed and 0 < told.free <= told.total


def test_a_battery_is_told_of_where_there_is_one() -> None:
    assert battery(lambda: None) is None
    assert battery(lambda: SimpleNamespace(percent=63.6, power_plugged=False)) == Battery(64, False)
    assert battery(lambda: SimpleNamespace(percent=100.4, power_plugged=None)) == Battery(100, None)
