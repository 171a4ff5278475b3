"""All graphics cards of the machine, and whether this version computes on them."""

from __future__ import annotations

import sys
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
    """Those of this system, whose `version` is given: first those with memory of their own, the largest before others."""
    if sys.platform == "darwin":
        return judged(apple(sysctl, memory, version)), ()
    if sys.platform == "win32":
        found, problems = nvidia.nvidia(nvidia.load(), memory, [], root)
        others = [gpu for gpu in windows(adapters()) if gpu.vendor != "nvidia" or not found]
        if not any(gpu.vendor == "nvidia" for gpu in (*found, *others)):
            problems = []
        return judged([*found, *others]), tuple(problems)
    return linux_gpus(root, memory, nvidia.load(), amd.load)


def linux_gpus(
    root: Path, memory: Memory, nvml: Any | None, load_smi: Any = lambda: None
) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """By the tree under `root` and by `nvml`; `load_smi` is called where a card of AMD's is there."""
    seen = pci.cards(root)
    found, problems = nvidia.nvidia(nvml, memory, seen, root)
    smi = load_smi() if any(card.vendor == pci.AMD for card in seen) else None
    return judged([*found, *amd.amd(seen, memory, root, smi), *intel(seen, root)]), tuple(problems)


def judged(found: list[Gpu]) -> tuple[Gpu, ...]:
    """In order, each with whether the kernels of this version run on it, and why they do not."""
    ordered = sorted(found, key=lambda gpu: (gpu.shared, -(gpu.total or 0)))
    return tuple(replace(gpu, usable=False, why_not=f"{gpu.why_not} {NOT_YET}".strip()) for gpu in ordered)
