"""All graphics cards of the machine, and whether this version computes on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from registry.probe import amd, nvidia, pci
from registry.probe.apple import apple
from registry.probe.intel import intel
from registry.probe.sysctl import sysctl
from registry.probe.tree import Gpu, Memory, Problem
from registry.probe.windows import adapters, windows

NOT_YET: Final = "This version computes on the processor alone; graphics cards come with a later one."


def gpus(root: Path, memory: Memory, version: str) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """Those of this system, whose `version` is given: first those with memory of their own, larger ones first."""
    if sys.platform == "darwin":
        return judged(apple(sysctl, memory, version)), ()
    if sys.platform == "win32":
        return windows_gpus(windows(adapters()), memory, nvidia.load())
    return linux_gpus(root, memory, nvidia.load(), amd.load)


def linux_gpus(
    root: Path, memory: Memory, nvml: Any | None, load_smi: Callable[[], Any | None] = lambda: None
) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """By the tree under `root` and by `nvml`; `load_smi` is called where a card of AMD's is there."""
    seen = pci.cards(root)
    found, problems = nvidia.nvidia(nvml, memory, seen, root)
    smi = load_smi() if any(card.vendor == pci.AMD for card in seen) else None
    return judged([*found, *amd.amd(seen, memory, root, smi), *intel(seen, root)]), tuple(problems)


def windows_gpus(listed: list[Gpu], memory: Memory, nvml: Any | None) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """By what Windows lists and by `nvml`, which tells more of NVIDIA's cards, where it tells of any."""
    found, problems = nvidia.nvidia(nvml, memory, [], Path("/"))
    others = [gpu for gpu in listed if gpu.vendor != "nvidia"]
    mine = [gpu for gpu in listed if gpu.vendor == "nvidia"]
    if mine and not found and not problems:
        problems = [Problem(nvidia.PART, nvidia.NO_PACKAGE if nvml is None else nvidia.SENTENCES[12])]
    return judged([*(found or mine), *others]), tuple(problems)


def judged(found: list[Gpu]) -> tuple[Gpu, ...]:
    """In order, each with whether the kernels of this version run on it, and why they do not."""
    ordered = sorted(found, key=lambda gpu: (gpu.shared, -(gpu.total or 0)))
    return tuple(replace(gpu, usable=False, why_not=f"{gpu.why_not} {NOT_YET}".strip()) for gpu in ordered)
