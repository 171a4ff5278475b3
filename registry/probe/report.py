"""A probe as text that a person reads, and copies into a report of a fault."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from engine.units import human_bytes
from registry.probe.tree import Battery, Gpu, Memory, Probe, Processor, Storage, System

KEY: Final = 12
"""Characters before the values."""
COLUMNS: Final = 80

STATES: Final = {
    "ready": "",
    "new": "not there yet; it is made when the first model comes",
    "drive missing": "its drive is not connected",
    "unreadable": "it cannot be read",
}
PARTS: Final = {
    "system": "System",
    "processor": "Processor",
    "memory": "Memory",
    "storage": "Models",
    "battery": "Battery",
    "gpus": "Graphics",
    "record": "Record",
}


def report(probe: Probe, columns: int = COLUMNS) -> str:
    """Lines of so many characters at most, but for a path that is longer. Ends with a line break."""
    blocks: list[tuple[str, list[str]]] = [
        ("System", list(_system(probe.system))),
        ("Processor", list(_processor(probe.processor))),
        ("Memory", [_memory(probe.memory)]),
        ("Models", list(_storage(probe.storage))),
        ("Battery", [_battery(probe.battery)]),
    ]
    blocks += [("Graphics", list(_gpu(gpu))) for gpu in probe.gpus] or [("Graphics", ["no graphics card found"])]
    if probe.problems:
        blocks.append(("Problems", [f"{PARTS.get(each.part, each.part)}: {each.sentence}" for each in probe.problems]))
    return "".join(f"{line}\n" for key, lines in blocks for line in _wrapped(key, lines, columns))


def _system(system: System) -> Iterator[str]:
    yield f"{system.name}{': ' if system.name == 'Linux' else ' '}{system.version}"
    yield f"Millstream {system.program}, Python {system.python}"


def _processor(processor: Processor) -> Iterator[str]:
    yield _joined(processor.name or "name not known", processor.architecture)
    cores = f"{_count(processor.cores, 'core')}, {_count(processor.logical, 'thread')}"
    if processor.quota is not None:
        cores += f"; a container grants the time of {processor.quota:g} of them"
    yield cores
    if processor.instructions:
        yield " ".join(processor.instructions)
    if processor.kernels:
        yield f"computes with the {processor.kernels} kernels, in {_count(processor.threads, 'thread')}"
    else:
        yield "no kernels can be loaded"


def _memory(memory: Memory) -> str:
    line = f"{human_bytes(memory.total)}, {human_bytes(memory.free)} of it free"
    if memory.total < memory.installed:
        line += f"; a container grants no more of the machine's {human_bytes(memory.installed)}"
    return line


def _storage(storage: Storage) -> Iterator[str]:
    yield storage.folder
    if STATES[storage.state]:
        yield STATES[storage.state]
    kind = {True: "hard disk", False: "solid state", None: ""}[storage.rotating]
    kinds = (kind, "removable" if storage.removable else "", "on the network" if storage.network else "")
    if line := _joined(storage.file_system, *kinds):
        yield line
    if storage.total is not None and storage.free is not None:
        yield f"{human_bytes(storage.free)} free of {human_bytes(storage.total)}"
    if storage.state in ("ready", "new"):
        rate = storage.read_rate
        yield "reads not measured yet" if rate is None else f"reads {human_bytes(round(rate))}/s"


def _battery(battery: Battery | None) -> str:
    if battery is None:
        return "none"
    power = {True: "plugged in", False: "running on it", None: ""}[battery.plugged_in]
    return _joined(f"{battery.percent} %", power)


def _gpu(gpu: Gpu) -> Iterator[str]:
    yield _joined(gpu.name, gpu.architecture)
    memory = "its memory is not known"
    if gpu.total is not None:
        of = " of the system's memory" if gpu.shared else ""
        free = "" if gpu.free is None else f", {human_bytes(gpu.free)} of it free"
        memory = f"{human_bytes(gpu.total)}{of}{free}"
    elif gpu.shared:
        memory = "shares the system's memory"
    yield memory
    yield f"driver {gpu.driver}" if gpu.driver else "no driver"
    yield "used" if gpu.usable else f"not used: {gpu.why_not}"


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _wrapped(key: str, lines: list[str], columns: int) -> Iterator[str]:
    """The key before the first line; what is broken goes on two characters to the right."""
    for number, line in enumerate(lines):
        yield from textwrap.wrap(
            line,
            columns,
            initial_indent=f"{'' if number else key:<{KEY}}",
            subsequent_indent=" " * (KEY + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
