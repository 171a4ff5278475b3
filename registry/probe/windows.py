"""Graphics cards as Windows keeps them in its registry, under the class of display adapters."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from registry.probe.intel import family
from registry.probe.pci import AMD, INTEL, NAMES, NVIDIA
from registry.probe.tree import Gpu, Vendor

CLASS: Final = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
MEMORY: Final = "HardwareInformation.qwMemorySize"
VALUES: Final = ("DriverDesc", "DriverVersion", "MatchingDeviceId", MEMORY)
VENDORS: Final[dict[int, Vendor]] = {NVIDIA: "nvidia", AMD: "amd", INTEL: "intel"}


def windows(adapters: Iterable[Mapping[str, object]]) -> list[Gpu]:
    """Of each adapter the values by name, as in `VALUES`; those of other makers, such as virtual ones, are left out."""
    found = [gpu for gpu in map(_card, adapters) if gpu is not None]
    return list(dict.fromkeys(found))


def adapters() -> Iterator[dict[str, object]]:
    """What the registry holds; nothing on other systems."""
    if sys.platform != "win32":
        return
    import winreg

    with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, CLASS) as group:
        for index in range(winreg.QueryInfoKey(group)[0]):
            values: dict[str, object] = {}
            with contextlib.suppress(OSError), winreg.OpenKey(group, winreg.EnumKey(group, index)) as key:
                for name in VALUES:
                    with contextlib.suppress(OSError):
                        values[name] = winreg.QueryValueEx(key, name)[0]
            yield values


def _card(values: Mapping[str, object]) -> Gpu | None:
    device = re.search(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", str(values.get("MatchingDeviceId", "")), re.IGNORECASE)
    vendor = int(device[1], 16) if device else 0
    if device is None or vendor not in VENDORS:
        return None
    name = re.sub(r"\((?:R|TM)\)", "", str(values.get("DriverDesc", ""))).strip() or f"{NAMES[vendor]} graphics"
    architecture, own = family(int(device[2], 16)) if vendor == INTEL else ("", True)
    # AMD calls the graphics in its processors so, and its cards by their model.
    shared = not own or (vendor == AMD and name.endswith("Graphics"))
    return Gpu(
        vendor=VENDORS[vendor],
        name=name if name.startswith(NAMES[vendor]) else f"{NAMES[vendor]} {name}",
        architecture=architecture,
        total=None if shared else _size(values.get(MEMORY)),
        free=None,
        shared=shared,
        driver=str(values.get("DriverVersion", "")),
        usable=False,
        why_not="",
    )


def _size(value: object) -> int | None:
    """A number, or its eight bytes, as some drivers write it."""
    if isinstance(value, bytes):
        value = int.from_bytes(value[:8], "little")
    return value if isinstance(value, int) and value > 0 else None
