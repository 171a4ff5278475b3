"""What a choice of model goes by of a machine, and how it follows from a probe.

Where nothing was measured, figures are those that are typical of the kind: a look at the machine's names, good enough
to choose by, and replaced by measured ones as soon as there are any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from engine.planning import reserve_of
from registry.probe.tree import Gpu, Probe

GB: Final = 1e9


@dataclass(frozen=True)
class MachineFacts:
    """Bytes, and bytes a second. `reserve` is left to other programs. `vram_usable` is free memory of cards that our
    kernels compute on; where it is `shared` it is a part of `ram_free`. `memory_bandwidth` is how fast weights are
    passed by the processor, which its cores may limit, `vram_bandwidth` the same of cards. `disk_free` is `None` where
    nobody knows, and so is no limit."""

    ram_total: int
    ram_free: int
    reserve: int
    memory_bandwidth: float
    disk_bandwidth: float
    disk_free: int | None
    cores: int
    vram_usable: int = 0
    vram_bandwidth: float = 0.0
    shared: bool = False

    @property
    def room(self) -> int:
        """Bytes of memory that a model may take. Who asks for a model may close other programs: at least half of all
        memory counts as free."""
        return max(max(self.ram_free, self.ram_total // 2) - self.reserve, 0)


PER_CORE: Final = 6 * GB
"""Of weights that one core passes by our kernels: 12.7 GB/s of Q4_1 were measured on two Zen 3 cores with AVX2, and the
other builds for vectors are taken to be as fast."""
PER_CORE_PORTABLE: Final = 1.5 * GB
"""Of one core without such instructions; an estimate."""
REACHED: Final = 0.8
"""Share of a memory's nominal bandwidth that plain reads reach."""
CARD_REACHED: Final = 0.7
"""Share of a card's that decoding reaches; an estimate until there are kernels to measure."""
SECOND_SOCKET: Final = 0.6
"""Of two sockets' memory, what threads that do not know of them reach; an estimate."""

MEMORY: Final[tuple[tuple[str, float], ...]] = (
    # Apple's chips, by their technical specifications.
    (r"Apple M\d Ultra", 800),
    (r"Apple M[123] Max", 400),
    (r"Apple M\d Max", 546),
    (r"Apple M[12] Pro", 200),
    (r"Apple M3 Pro", 150),
    (r"Apple M\d Pro", 273),
    (r"Apple M1", 68),
    (r"Apple M[23]", 100),
    (r"Apple M\d", 120),
    # Servers and workstations, by their channels: eight of DDR4-3200, twelve of DDR5-4800, four of DDR4-3200.
    (r"Threadripper PRO|EPYC 7\d\d[123]|Xeon.* (?:Gold|Platinum) [56]3\d\d", 205),
    (r"EPYC 9\d\d\d|Xeon.* (?:Gold|Platinum) [56][45]\d\d", 307),
    (r"Threadripper", 102),
    # Two channels of what came with each generation: DDR5-4800 to 5600, DDR4-3200, DDR3-1600 and DDR3-1333.
    (r"Ryzen \d (?:PRO )?[789]\d\d\d|1[2345]th Gen|Core\(TM\) Ultra", 83),
    (r"Ryzen|1[01]th Gen|Core\(TM\) i\d-[6789]\d\d\d", 51),
    (r"Core\(TM\) i\d-[345]\d\d\d", 25.6),
    (r"Core\(TM\) i\d-2\d\d\d", 21.3),
)
"""Nominal bandwidths in GB/s by the names of processors. Source: the makers' specifications of memory, channels times
eight bytes times transfers a second."""
TYPICAL_MEMORY: Final = 40.0
"""Of a processor that says nothing."""

CARDS: Final[tuple[tuple[str, float], ...]] = (
    (r"RTX 5090", 1792),
    (r"RTX (?:5080|4090)", 1000),
    (r"RTX (?:3090|5070 Ti)", 930),
    (r"RTX (?:3080|4080)", 740),
    (r"RTX (?:3060 Ti|3070|4070)", 448),
    (r"RTX (?:3060|5060)", 360),
    (r"RTX 4060", 272),
    (r"RX 7900", 800),
    (r"RX 7800", 624),
    (r"Arc A7", 512),
    (r"Arc B5", 456),
    (r"GB10", 273),
    (r"Radeon 7[468]0M|Radeon 8\d\d", 83),
)
"""The same of cards' own memory, or of the memory that they share."""
TYPICAL_CARD: Final = 300.0

DISKS: Final = {"rotating": 0.15, "network": 0.1, "removable": 0.4, "other": 1.5}
"""GB/s: a hard disk, a gigabit network, USB 3, and an NVMe drive that is not of the fastest."""


def facts(probe: Probe, *, memory: float | None = None, cards_compute: bool | None = None) -> MachineFacts:
    """What a probe tells. `memory` is the bandwidth that its kernels were measured to reach. Cards count where
    the probe finds them usable; `cards_compute` says otherwise, to see what a choice would be."""
    total, free = probe.memory.total, probe.memory.free
    ours = [gpu for gpu in probe.gpus if gpu.total and (gpu.usable if cards_compute is None else cards_compute)]
    shared = bool(ours) and all(gpu.shared for gpu in ours)
    if any(not gpu.shared for gpu in ours):
        # A part of the system's memory is no faster for a card that shares it with a better one.
        ours = [gpu for gpu in ours if not gpu.shared]
    vram = sum(_free(gpu) for gpu in ours)
    return MachineFacts(
        ram_total=total,
        ram_free=free,
        reserve=reserve_of(total, free),
        memory_bandwidth=memory or _memory(probe),
        disk_bandwidth=probe.storage.read_rate or _disk(probe) * GB,
        disk_free=probe.storage.free,
        cores=probe.processor.threads,
        vram_usable=vram,
        # Layers go through the cards one after the other: the bytes by their bandwidths, added up.
        vram_bandwidth=vram / sum(_free(gpu) / _card(gpu, probe) for gpu in ours) if vram else 0.0,
        shared=shared,
    )


def _free(gpu: Gpu) -> int:
    return gpu.free or gpu.total or 0


def _memory(probe: Probe) -> float:
    processor = probe.processor
    each = PER_CORE if processor.kernels not in ("", "portable") else PER_CORE_PORTABLE
    sockets = 2 * SECOND_SOCKET if processor.cores >= 64 and "Xeon" in processor.name else 1.0
    nominal = _named(MEMORY, processor.name, TYPICAL_MEMORY)
    if nominal == TYPICAL_MEMORY and (card := next((gpu for gpu in probe.gpus if gpu.shared), None)):
        nominal = _named(CARDS, card.name, TYPICAL_MEMORY)
    return min(REACHED * sockets * nominal * GB, max(processor.threads, 1) * each)


def _card(gpu: Gpu, probe: Probe) -> float:
    chip = _named(MEMORY, gpu.name, TYPICAL_CARD)
    return CARD_REACHED * GB * _named(CARDS, gpu.name, chip)


def _named(table: tuple[tuple[str, float], ...], name: str, otherwise: float) -> float:
    return next((figure for pattern, figure in table if re.search(pattern, name)), otherwise)


def _disk(probe: Probe) -> float:
    storage = probe.storage
    kinds = {"rotating": storage.rotating, "network": storage.network, "removable": storage.removable}
    return DISKS[next((kind for kind, is_so in kinds.items() if is_so), "other")]
