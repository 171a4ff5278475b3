"""The processor: what it is called, what of it this process may use, and which kernels run on it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from engine.cgroups import cpu_quota, text
from engine.cores import default_threads
from engine.errors import MillstreamError
from engine.kernels.native.library import load
from registry.probe.sysctl import Sysctl, sysctl
from registry.probe.tree import Problem, Processor

X86: Final = ("avx", "f16c", "fma", "avx2", "bmi2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni")
ARM: Final = ("asimd", "asimddp", "i8mm", "bf16", "sve")
"""What the builds of the kernels ask for, or a later one could gain from, as Linux spells them in /proc/cpuinfo."""

MACOS: Final = {
    "hw.optional.avx1_0": "avx",
    "hw.optional.f16c": "f16c",
    "hw.optional.fma": "fma",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.bmi2": "bmi2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.avx512bw": "avx512bw",
    "hw.optional.avx512vl": "avx512vl",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}
WINDOWS: Final = {39: "avx", 40: "avx2", 41: "avx512f", 43: "asimddp"}
"""Numbers of IsProcessorFeaturePresent (winnt.h, PF_AVX_INSTRUCTIONS_AVAILABLE …)."""

SLOW: Final = (
    "This processor lacks the instructions that the fast kernels need (AVX2, or the dot product on Arm), so that "
    "answers come slowly."
)

ARCHITECTURES: Final = {"amd64": "x86_64", "x64": "x86_64", "aarch64": "arm64"}


def processor(root: Path) -> tuple[Processor, tuple[Problem, ...]]:
    allowed = _allowed()
    kernels, problems = _kernels()
    if kernels == "portable" and not os.environ.get("MILLSTREAM_ISA"):
        problems += (Problem("processor", SLOW),)
    machine = platform.machine().lower()
    found = Processor(
        name=_name(root),
        architecture=ARCHITECTURES.get(machine, machine),
        cores=_cores(root, allowed),
        logical=len(allowed),
        quota=cpu_quota(root) if sys.platform == "linux" else None,
        threads=default_threads(),
        instructions=_instructions(root),
        kernels=kernels,
    )
    return found, problems


def linux_name(root: Path) -> str:
    """The brand; on Arm, where the kernel tells none, what the board is called."""
    facts = _cpuinfo(root)
    for key in ("model name", "Model", "Hardware"):
        if facts.get(key):
            return " ".join(facts[key].split())
    return (text(root / "proc/device-tree/model") or "").rstrip("\0")


def linux_instructions(root: Path) -> tuple[str, ...]:
    facts = _cpuinfo(root)
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    return tuple(name for name in (*X86, *ARM) if name in flags)


def macos_instructions(ask: Sysctl) -> tuple[str, ...]:
    return tuple(name for key, name in MACOS.items() if ask(key) == 1)


def linux_cores(root: Path, allowed: Iterable[int]) -> int | None:
    """Physical cores among the logical processors `allowed`, fast and slow ones alike; `None` where it is not told."""
    cores = set()
    for cpu in allowed:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        cores.add(text(topology / "core_cpus_list") or text(topology / "thread_siblings_list"))
    return len(cores - {None}) or None


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first value of each key."""
    facts: dict[str, str] = {}
    for line in (text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts


def _name(root: Path) -> str:
    if sys.platform == "linux":
        return linux_name(root)
    if sys.platform == "darwin":
        return str(sysctl("machdep.cpu.brand_string") or "")
    if sys.platform == "win32":
        return _windows_name()
    return platform.processor()


def _windows_name() -> str:
    if sys.platform != "win32":
        return ""
    import winreg

    path = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
            return " ".join(str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).split())
    except OSError:
        return platform.processor()


def _instructions(root: Path) -> tuple[str, ...]:
    if sys.platform == "linux":
        return linux_instructions(root)
    if sys.platform == "darwin":
        return macos_instructions(sysctl)
    if sys.platform == "win32":
        has = ctypes.windll.kernel32.IsProcessorFeaturePresent
        return tuple(name for number, name in WINDOWS.items() if has(number))
    return ()


def _cores(root: Path, allowed: list[int]) -> int:
    told = linux_cores(root, allowed) if sys.platform == "linux" else None
    return told or min(len(allowed), psutil.cpu_count(logical=False) or len(allowed))


def _allowed() -> list[int]:
    """The logical processors that this process may run on."""
    allowed: list[int] | None = None
    if sys.platform in ("linux", "win32"):
        with contextlib.suppress(psutil.Error):
            allowed = psutil.Process().cpu_affinity()
    return allowed or list(range(psutil.cpu_count() or 1))


def _kernels() -> tuple[str, tuple[Problem, ...]]:
    try:
        return load()[0], ()
    except MillstreamError as error:
        return "", (Problem("processor", str(error)),)
