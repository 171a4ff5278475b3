"""The graphics in Apple's processors, which work in the system's memory."""

from __future__ import annotations

import re
from typing import Final

from registry.probe.sysctl import Sysctl
from registry.probe.tree import Gpu, Memory

LARGE: Final = 36 << 30
"""Bytes of memory from which on Metal grants three quarters of it, below two thirds: `recommendedMaxWorkingSetSize` of
MTLDevice on machines with 8 to 192 GiB."""


def apple(ask: Sysctl, memory: Memory, version: str) -> list[Gpu]:
    """One, or none on machines with Intel's processors. `version` is that of macOS, of which the driver is a part."""
    name = ask("machdep.cpu.brand_string")
    if not isinstance(name, str) or not (family := re.match(r"Apple (\w+)", name)):
        return []
    wired = ask("iogpu.wired_limit_mb")
    if isinstance(wired, int) and wired > 0:
        total = wired << 20
    else:
        total = memory.installed * 3 // 4 if memory.installed >= LARGE else memory.installed * 2 // 3
    return [
        Gpu(
            vendor="apple",
            name=name,
            architecture=f"apple-{family[1].lower()}",
            total=min(total, memory.installed),
            free=min(total, memory.free),
            shared=True,
            driver=f"Metal, macOS {version}".strip(),
            usable=False,
            why_not="",
        )
    ]
