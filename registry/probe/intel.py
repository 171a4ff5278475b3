"""Intel's graphics, in processors and on cards, as the kernel's drivers i915 and xe describe them under /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from engine.cgroups import text
from registry.probe.amd import NO_DRIVER
from registry.probe.pci import INTEL, Card, driver_version, name_of, number
from registry.probe.tree import Gpu

FAMILIES: Final = (
    (0x4905, 0x490F, "xe-lp", True),  # DG1
    (0x4F80, 0x4F88, "xe-hpg", True),  # Arc A, early
    (0x5690, 0x56CF, "xe-hpg", True),  # Arc A, Flex
    (0x0B69, 0x0BE5, "xe-hpc", True),  # Max
    (0xE202, 0xE2FF, "xe2-hpg", True),  # Arc B
    (0x4C80, 0x4C9F, "xe-lp", False),  # Rocket Lake
    (0x9A40, 0x9AFF, "xe-lp", False),  # Tiger Lake
    (0x4600, 0x46FF, "xe-lp", False),  # Alder Lake
    (0xA720, 0xA7FF, "xe-lp", False),  # Raptor Lake
    (0x7D40, 0x7DFF, "xe-lpg", False),  # Meteor Lake, Arrow Lake
    (0x6420, 0x64FF, "xe2-lpg", False),  # Lunar Lake
    (0xB080, 0xB0FF, "xe3-lpg", False),  # Panther Lake
)
"""Device numbers from … to, the architecture, and whether it has memory of its own (Linux, drm/intel/pciids.h)."""

PREFETCHABLE, LEAST_WINDOW = 0x2000, 1 << 30
"""The flag of a window onto memory (Linux, include/linux/ioport.h), and the least size of one that shows all of it."""


def intel(seen: list[Card], root: Path) -> list[Gpu]:
    return [_card(card, root) for card in seen if card.vendor == INTEL]


def family(device: int) -> tuple[str, bool]:
    """The architecture, "" for those before Xe, and whether the device has memory of its own."""
    for first, last, name, own in FAMILIES:
        if first <= device <= last:
            return name, own
    return "", False


def _card(card: Card, root: Path) -> Gpu:
    architecture, own = family(card.device)
    total = _own_memory(card.folder) if own else None
    return Gpu(
        vendor="intel",
        name=name_of(root, card),
        architecture=architecture,
        total=total,
        free=_drm(card.folder, "lmem_avail_bytes") if total else None,
        shared=not own,
        driver=driver_version(root, card),
        usable=False,
        why_not="" if card.driver else NO_DRIVER,
    )


def _own_memory(folder: Path) -> int | None:
    """What the driver i915 or xe tells, the sum of the tiles; else the window onto it, where that is a large one."""
    if told := _drm(folder, "lmem_total_bytes"):
        return told
    for pattern in ("tile*/physical_vram_size_bytes", "tile*/memory/physical_vram_size_bytes"):
        if tiles := sum(number(file) or 0 for file in folder.glob(pattern)):
            return tiles
    return _window(folder)


def _drm(folder: Path, name: str) -> int | None:
    for file in (folder / name, *folder.glob(f"drm/card*/{name}")):
        if (told := number(file)) is not None:
            return told
    return None


def _window(folder: Path) -> int | None:
    """The largest window in `resource`, whose lines are first and last address and flags."""
    sizes = [0]
    for line in (text(folder / "resource") or "").splitlines():
        try:
            first, last, flags = (int(part, 16) for part in line.split())
        except ValueError:
            continue
        if flags & PREFETCHABLE:
            sizes.append(last - first + 1)
    return max(sizes) if max(sizes) >= LEAST_WINDOW else None
