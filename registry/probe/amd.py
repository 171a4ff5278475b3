"""AMD's cards, as the kernel's drivers amdgpu and amdkfd describe them under /sys."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.cgroups import text
from registry.probe.pci import AMD, Card, driver_version, name_of, number
from registry.probe.tree import Gpu, Memory

APU_METRICS: Final = (2, 3)
"""Revisions, the third byte, of the table in `gpu_metrics` that processors with graphics have; cards have revision 1
(Linux, kgd_pp_interface.h, gpu_metrics_v2_0 …)."""

NO_DRIVER: Final = "No driver has taken it."


def amd(seen: list[Card], memory: Memory, root: Path, smi: Any | None = None) -> list[Gpu]:
    """The cards that were `seen`. `smi` has the functions of amdsmi, which knows names that the system may not."""
    targets = gfx_targets(root)
    mine = [card for card in seen if card.vendor == AMD]
    found = {card.address: _card(card, memory, root, targets.get(card.address, "")) for card in mine}
    told = _told(smi) if found and smi is not None else {}
    return [_completed(gpu, told.get(address, {})) for address, gpu in found.items()]


def load() -> Any | None:
    """The module amdsmi; `None` where it is not installed, or finds no library of the driver's."""
    try:
        return importlib.import_module("amdsmi")
    except Exception:  # it loads the library on import, and fails in many ways
        return None


def gfx_targets(root: Path) -> dict[str, str]:
    """The architecture by PCI address, of the nodes of the compute driver.

    `gfx_target_version` is 10000 × major + 100 × minor + stepping, of which the names write the last two in
    hexadecimal: 90010 → gfx90a. `location_id` is bus × 256 + device × 8 + function.
    """
    targets: dict[str, str] = {}
    for file in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        facts: dict[str, int] = {}
        for line in (text(file) or "").splitlines():
            key, _, value = line.partition(" ")
            if value.isdecimal():
                facts[key] = int(value)
        version, place = facts.get("gfx_target_version", 0), facts.get("location_id", 0)
        if version:
            address = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
            targets[address] = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    return targets


def _card(card: Card, memory: Memory, root: Path, target: str) -> Gpu:
    total, used = number(card.folder / "mem_info_vram_total"), number(card.folder / "mem_info_vram_used")
    free = None if total is None or used is None else max(total - used, 0)
    shared = _is_shared(card)
    if shared and total is not None and free is not None:
        # It computes in the memory that the firmware set apart for it, and in as much again as the driver lends it.
        lent = number(card.folder / "mem_info_gtt_total") or 0
        left = max(lent - (number(card.folder / "mem_info_gtt_used") or 0), 0)
        total, free = total + lent, free + min(left, memory.free)
    return Gpu(
        vendor="amd",
        name=name_of(root, card),
        architecture=target,
        total=total,
        free=free,
        shared=shared,
        driver=driver_version(root, card),
        usable=False,
        why_not="" if card.driver else NO_DRIVER,
    )


def _is_shared(card: Card) -> bool:
    try:
        with open(card.folder / "gpu_metrics", "rb") as file:
            header = file.read(4)
    except OSError:
        return False
    return len(header) == 4 and header[2] in APU_METRICS


def _told(smi: Any) -> dict[str, dict[str, Any]]:
    """Facts about each card's chip by PCI address; none where amdsmi fails."""
    facts: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(smi.AmdSmiException):
        smi.amdsmi_init()
        try:
            for handle in smi.amdsmi_get_processor_handles():
                with contextlib.suppress(smi.AmdSmiException):
                    facts[smi.amdsmi_get_gpu_device_bdf(handle).lower()] = smi.amdsmi_get_gpu_asic_info(handle)
        finally:
            smi.amdsmi_shut_down()
    return facts


def _completed(gpu: Gpu, facts: dict[str, Any]) -> Gpu:
    """With the name and the architecture, where amdsmi has one and the system had none."""
    name, target = str(facts.get("market_name", "")), str(facts.get("target_graphics_version", ""))
    if name and name != "N/A" and gpu.name.startswith("AMD graphics ("):
        gpu = replace(gpu, name=name if name.startswith("AMD") else f"AMD {name}")
    return replace(gpu, architecture=target) if target.startswith("gfx") and not gpu.architecture else gpu
