"""Trees such as Linux shows under /proc and /sys, written out to be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())


def pci_card(
    root: Path,
    address: str,
    ids: str,
    driver: str = "",
    files: Mapping[str, str | bytes] | None = None,
    *,
    revision: int = 0,
    kind: int = 0x030000,
) -> None:
    """A card by its "vendor:device", taken by a driver where one is named."""
    vendor, _, device = ids.partition(":")
    folder = f"sys/bus/pci/devices/{address}"
    own = {
        "vendor": f"0x{vendor}\n",
        "device": f"0x{device}\n",
        "class": f"0x{kind:06x}\n",
        "revision": f"0x{revision:02x}\n",
    }
    write(root, {f"{folder}/{name}": content for name, content in {**own, **(files or {})}.items()})
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        os.symlink(f"../../drivers/{driver}", root / folder / "driver")
    write(root, {"proc/sys/kernel/osrelease": "6.12.33\n"})


def kfd_node(root: Path, number: int, **facts: int) -> None:
    lines = "".join(f"{key} {value}\n" for key, value in facts.items())
    write(root, {f"sys/class/kfd/kfd/topology/nodes/{number}/properties": lines})
