"""Graphics cards as Linux lists them among the PCI devices, whether or not a driver has taken them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.cgroups import text
from engine.units import LARGEST
from registry.probe.mounts import text_utf8

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
NAMES: Final = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
DISPLAY, ACCELERATOR = 0x03, 0x12
"""Base classes of devices (PCI Code and ID Assignment Specification); AMD's largest cards are of the second."""

TABLES: Final = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "var/lib/pciutils/pci.ids")
MARKETING: Final = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")


@dataclass(frozen=True)
class Card:
    """`address` is as in "0000:03:00.0", `driver` "" where none has taken the card, `folder` its own under /sys."""

    address: str
    vendor: int
    device: int
    revision: int
    driver: str
    folder: Path


def cards(root: Path) -> list[Card]:
    """Those of the vendors in `NAMES`, by address; a virtual machine's or a server's plain display is none."""
    return sorted(_cards(root), key=lambda card: card.address)


def _cards(root: Path) -> Iterator[Card]:
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        vendor, kind = number(folder / "vendor"), (number(folder / "class") or 0) >> 16
        if vendor in NAMES and (kind == DISPLAY or (kind == ACCELERATOR and vendor == AMD)):
            driver = folder / "driver"
            yield Card(
                address=folder.name,
                vendor=vendor,
                device=number(folder / "device") or 0,
                revision=number(folder / "revision") or 0,
                driver=Path(os.path.realpath(driver)).name if driver.is_symlink() else "",
                folder=folder,
            )


def number(file: Path) -> int | None:
    """What a file under /sys holds, "0x1002" or "16368": `None` for anything else."""
    try:
        told = int(text(file) or "", 0)
    except ValueError:
        return None
    return told if 0 <= told <= LARGEST else None


def driver_version(root: Path, card: Card) -> str:
    """The driver with its own version, or the kernel's, of which it is a part."""
    if not card.driver:
        return ""
    version = text(root / "sys/module" / card.driver / "version")
    release = text(root / "proc/sys/kernel/osrelease")
    return f"{card.driver} {version}" if version else f"{card.driver}, Linux {release}" if release else card.driver


def name_of(root: Path, card: Card) -> str:
    """As it is sold, where the system has a table that tells; else by its numbers."""
    maker = NAMES[card.vendor]
    name = (_marketed(root, card) if card.vendor == AMD else "") or _listed(root, card)
    if not name:
        return f"{maker} graphics ({card.vendor:04x}:{card.device:04x})"
    return name if name.startswith(maker) else f"{maker} {name}"


def _marketed(root: Path, card: Card) -> str:
    """Of AMD's own table: lines of device, revision and name, "744C, C8, AMD Radeon RX 7900 XTX"."""
    for file in MARKETING:
        for line in (text_utf8(root / file) or "").splitlines():
            device, _, rest = line.partition(",")
            revision, _, name = rest.partition(",")
            if device.strip().upper() == f"{card.device:04X}" and revision.strip().upper() == f"{card.revision:02X}":
                return name.strip()
    return ""


def _listed(root: Path, card: Card) -> str:
    """Of the table of all PCI devices: makers at the margin, devices behind a tab, "744c  Navi 31 [Radeon RX 7900]"."""
    for file in TABLES:
        mine = False
        for line in (text_utf8(root / file) or "").splitlines():
            if line[:1] not in ("\t", "#", ""):
                mine = line.startswith(f"{card.vendor:04x} ")
            elif mine and line.startswith(f"\t{card.device:04x} "):
                name = line[6:].strip()
                return name.partition("[")[2].removesuffix("]") or name
    return ""
