"""How many threads to compute with: one for each physical performance core that this process may use.

Two threads of one core share its arithmetic units, and a slow core makes the fast ones wait at every barrier, so both
cost speed. What the system tells is read here; where it tells nothing, psutil counts physical cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from engine.cgroups import cpu_quota, text
from engine.checks import MAX_THREADS

ROOT = Path("/")

EFFICIENT = 2 / 3
"""Arm cores of the lowest class are left alone where they do less than this share of the fastest ones' work.

In Linux's device trees (`capacity-dmips-mhz`) little cores come to 0.25 to 0.6 of the big ones, before a lower
frequency takes more off; cores that differ in their highest frequency alone stay above 0.7.
"""


def default_threads() -> int:
    """The number of physical performance cores that this process may use: 1 … 256."""
    allowed = _allowed()
    cores, most = None, None
    if sys.platform == "linux":
        cores, most = linux_cores(ROOT, allowed), cpu_quota(ROOT)
    elif sys.platform == "darwin":
        cores = _macos_cores()
    elif sys.platform == "win32":
        cores = _windows_cores(allowed)
    if not cores:
        cores = min(len(allowed), psutil.cpu_count(logical=False) or len(allowed))
    if most is not None:
        cores = min(cores, math.ceil(most))
    return max(1, min(cores, MAX_THREADS))


def processors() -> int:
    """The logical processors that this process may use: so many threads run at once."""
    return len(_allowed())


def linux_cores(root: Path, allowed: Iterable[int]) -> int | None:
    """Physical performance cores among the logical processors `allowed`, by `root`/sys; `None` where it tells nothing.

    Where none of the allowed ones is a performance core, all of them count.
    """
    devices = root / "sys/devices"
    performance = _intel_performance(devices) or _arm_performance(devices)
    cpus = set(allowed)
    cores = {_siblings(devices / f"system/cpu/cpu{cpu}/topology") for cpu in (cpus & performance) or cpus}
    return len(cores - {None}) or None


def windows_cores(information: bytes, allowed: Iterable[int]) -> int:
    """Physical performance cores in what GetLogicalProcessorInformationEx tells about RelationProcessorCore.

    Each SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX gives one core's efficiency class (higher is faster), its group and
    the mask of its logical processors in it. `allowed` numbers those of one group and says nothing where there are
    more.
    """
    mask = sum(1 << cpu for cpu in set(allowed))
    cores: list[tuple[int, int, int]] = []
    at = 0
    while at + 48 <= len(information):
        size, efficiency_class, processors, group = struct.unpack_from("<4xIxB22xQH", information, at)
        cores.append((efficiency_class, group, processors))
        at += max(size, 48)
    one_group = len({group for _, group, _ in cores}) == 1
    mine = [core for core in cores if not one_group or core[2] & mask]
    lowest, highest = (pick((core[0] for core in cores), default=0) for pick in (min, max))
    fast = [core for core in mine if core[0] > lowest or lowest == highest]
    return len(fast or mine)


def _allowed() -> list[int]:
    """The logical processors that this process may run on; all of them where the system has no such limit."""
    allowed: list[int] | None = None
    if sys.platform in ("linux", "win32"):
        with contextlib.suppress(psutil.Error):
            allowed = psutil.Process().cpu_affinity()
    return allowed or list(range(psutil.cpu_count() or 1))


def _siblings(topology: Path) -> str | None:
    """What names a core: the list of the logical processors that share it. The second file name is the older one.

    Core numbers would not do: on Arm they begin again in every cluster.
    """
    return text(topology / "core_cpus_list") or text(topology / "thread_siblings_list")


def _intel_performance(devices: Path) -> set[int]:
    """The performance cores' processors, which hybrid Intel processors list as a counter of their own."""
    return set(_numbers(text(devices / "cpu_core/cpus") or ""))


def _arm_performance(devices: Path) -> set[int]:
    """All processors but those of the lowest capacity, where that is well below the highest; otherwise none."""
    capacities: dict[int, int] = {}
    for file in devices.glob("system/cpu/cpu[0-9]*/cpu_capacity"):
        capacity = text(file) or ""
        if capacity.isascii() and capacity.isdigit():
            capacities[int(file.parent.name[3:])] = int(capacity)
    lowest, highest = (pick(capacities.values(), default=0) for pick in (min, max))
    if lowest >= EFFICIENT * highest:
        return set()
    return {cpu for cpu, capacity in capacities.items() if capacity > lowest}


def _numbers(listed: str) -> Iterator[int]:
    """The numbers of a list such as "0-5,8"."""
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            yield from range(int(first), min(int(last or first), int(first) + 4096) + 1)


def _macos_cores() -> int | None:
    """Cores of the fastest level; `None` on Intel, where there are no levels."""
    cores, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    name = b"hw.perflevel0.physicalcpu"
    failed = ctypes.CDLL(None).sysctlbyname(name, ctypes.byref(cores), ctypes.byref(size), None, ctypes.c_size_t(0))
    return None if failed else cores.value


def _windows_cores(allowed: Iterable[int]) -> int | None:
    """`None` where the system refuses to tell."""
    if sys.platform != "win32":
        return None
    ask, size = ctypes.windll.kernel32.GetLogicalProcessorInformationEx, ctypes.c_uint32(0)
    ask(0, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not size.value or not ask(0, buffer, ctypes.byref(size)):
        return None
    return windows_cores(buffer.raw[: size.value], allowed)
