"""How a model fits into the memory that is granted: what stays, what comes from disk, and how fast that makes it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.buffers import LARGE_PAGE
from engine.cancel import Cancel, patiently
from engine.checks import check_budgets
from engine.cores import default_threads, processors
from engine.decode.cache import position_bytes
from engine.decode.measure import SHORT
from engine.decode.states import state_bytes
from engine.errors import BudgetError, naming
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.info import model_info, positions
from engine.memory.figures import Drive, Speeds
from engine.memory.forecast import Flow, forecast, weighty
from engine.memory.machine import (
    BLOCK,
    MOST,
    drive_of,
    free_memory,
    kept_drive,
    kept_speeds,
    measured_at,
    real_memory,
    speeds_of,
    total_memory,
)
from engine.memory.needs import Anatomy, Needs
from engine.memory.planner import KINDS, Costs, Item, Placement, Tiers, place, placement_of, read_per_token
from engine.memory.raw_file import PAGE
from engine.shortage import too_little
from engine.types import Budgets, ModelInfo, Placed, Plan, Tier
from engine.units import human_bytes
from engine.vision.eyes import Eyes, find_eyes

GIB: Final = 1 << 30
SHORTEST: Final = 1024
"""Positions below which a context that nobody asked for is not cut."""
SMALLEST_CHUNK: Final = 16
"""Rows below which chunks are only cut where nothing else helps: each one reads all weights that stream."""
SHARE: Final = 8
"""Activations of a chunk, and the arena, each take at most one part in so many of the memory."""
TOKENIZER_ENTRY: Final = 640
"""Bytes of a tokenizer for each token, measured over 49 k (591) and rounded up."""
ALLOWANCE: Final = 24 << 20
"""Bytes for what a process takes beside: stacks and heaps of threads, a chat template, fragments; measured under 8 MB.
"""
AT_ONCE: Final = 4
"""Reads under way at least: the processor computes meanwhile and is late to hand over the next. Decoding a dense model
of 2 GB from a disk that two plain readers exhaust took 1.11 times the floor's time with 2, and no more than it with 4.
"""
USUAL: Final = Drive(bandwidth=5e8, latency=1e-4, threads=4, block_bytes=BLOCK)
"""What a drive is taken for that was not measured."""


@dataclass(frozen=True)
class Machine:
    """What there is to plan with.

    `drive` and the kernels' `speeds` of some encodings are asked only where the plan depends on them; `None` where
    nothing was measured. `kept` is what is known of the drive without measuring it, `measured` when the oldest of these
    figures was measured. `overhead` is what the process takes beside the model; `pending` of it is not taken yet.
    """

    total: int
    free: int
    threads: int
    overhead: int
    pending: int
    drive: Callable[[], Drive | None]
    speeds: Callable[[Collection[str]], Speeds | None]
    kept: Callable[[], Drive | None] = lambda: None
    measured: Callable[[], int | None] = lambda: None

    @property
    def reserve(self) -> int:
        """Bytes that are left to other programs where no memory is named."""
        return reserve_of(self.total, self.free)


def reserve_of(total: int, free: int) -> int:
    """Of memory, in bytes: a tenth of all, but 1 GiB at least; where the machine has little, a quarter of all or half
    of what is free."""
    return min(max(GIB, total // 10), total // 4, free // 2)


def plan(
    path: str | os.PathLike[str],
    budgets: Budgets | None = None,
    *,
    mmproj: str | os.PathLike[str] | None = None,
    measurements: Path | None = None,
    remeasure: bool = False,
    cancel: Cancel | None = None,
) -> Plan:
    """How the model at `path` would be placed within `budgets`, without loading it.

    The drive, where the model would stream, and the kernels are measured, in about three seconds; their figures are
    kept in the file `measurements` and measured anew where `remeasure` says so. `cancel` makes it raise `Cancelled`,
    while a disk hangs, too. Raises as `Engine.load`, BudgetError where the memory is too little.
    """
    budgets = budgets or Budgets()
    check_budgets(budgets)
    index = patiently(lambda: open_index(Path(path)), cancel)
    files = Path(path).name, *(part.name for part in index.paths)
    with naming(*files):
        info = patiently(lambda: model_info(index), cancel)
    eyes = patiently(lambda: find_eyes(index, None if mmproj is None else Path(mmproj)), cancel)
    with naming(*files):
        machine = this_machine(index, info, budgets, measurements, remeasure=remeasure, cancel=cancel)
        return make_plan(index, info, budgets, eyes, machine, cancel)[0]


def pending(info: ModelInfo) -> int:
    """Bytes that the process will take beside the model, its tokenizer among them."""
    return ALLOWANCE + info.vocabulary * TOKENIZER_ENTRY


def this_machine(
    index: TensorIndex,
    info: ModelInfo,
    budgets: Budgets,
    measurements: Path | None = None,
    *,
    remeasure: bool = False,
    loading: bool = False,
    place: Path | None = None,
    cancel: Cancel | None = None,
) -> Machine:
    """The machine as it is now. While `loading`, the model's tokenizer is in memory already, and the kernels' speeds,
    whose measurement takes memory itself, are not measured. `place` is a folder on the drive that the model will be
    read from, where its files are not whole here: that drive is not measured."""
    threads = budgets.threads or default_threads()
    coming = ALLOWANCE if loading else pending(info)
    reading = min(threads, processors())  # more of them take turns

    at = place or index.paths[0]

    def drive() -> Drive | None:
        if place is not None:
            return kept_drive(place, measurements)
        return drive_of(at, measurements, remeasure=remeasure, most=budgets.ram or MOST, cancel=cancel)

    def speeds(encodings: Collection[str]) -> Speeds | None:
        if loading:
            return kept_speeds(reading, measurements)
        return speeds_of(reading, encodings, measurements, remeasure=remeasure)

    return Machine(
        total=total_memory(),
        free=free_memory(),
        threads=threads,
        overhead=real_memory() + coming,
        pending=coming,
        drive=drive,
        speeds=speeds,
        kept=lambda: patiently(lambda: kept_drive(at, measurements), cancel),
        measured=lambda: patiently(lambda: measured_at(at, reading, measurements), cancel),
    )


def make_plan(
    index: TensorIndex,
    info: ModelInfo,
    budgets: Budgets,
    eyes: Eyes | None,
    machine: Machine,
    cancel: Cancel | None = None,
    *,
    anatomy: Anatomy | None = None,
) -> tuple[Plan, Placement]:
    """The plan, and what loading goes by. `anatomy` is that of the same file and eyes, where it is worked out already.

    Of a context that nobody asked for, which is the model's own up to 8192 positions, the cache takes at most half of
    the memory; it is halved for that, down to 1024. One that was asked for is never cut. Chunks are halved until their
    activations take an eighth of the memory, down to 16. The arena, for twice as many blocks as threads read and one
    more, takes at most an eighth, too. Raises BudgetError where the memory is too little, which names the least that
    is enough; SettingsError for a context that the model was not made for.
    """
    if budgets.vram:
        raise BudgetError(
            f"{human_bytes(budgets.vram)} of a graphics card's memory are granted, but there is no card that this "
            "engine can use: grant none of it."
        )
    # No chunk is longer than what it is part of.
    wanted = positions(budgets, info)
    budgets = replace(budgets, chunk=min(budgets.chunk, wanted))
    ram = room(budgets, machine)
    anatomy = anatomy or Anatomy(index, eyes, cancel)
    needs = Needs(index, budgets, eyes, machine.threads, anatomy=anatomy)
    context = _context(needs, info, budgets, machine, ram)
    whole = next((chunk for chunk in needs.chunks if needs.resident(context, chunk) <= ram), 0)
    if stays(needs, context, ram) or needs.streamed(context, 1) > ram:
        return _told(needs, budgets, machine, ram, _Choice(wanted, context, whole, resident=True))
    enough = [chunk for chunk in needs.chunks if needs.streamed(context, chunk) <= ram]
    modest = (
        chunk for chunk in enough if chunk <= SMALLEST_CHUNK or needs.activations(context, chunk, False) <= ram // SHARE
    )
    return _told(needs, budgets, machine, ram, _Choice(wanted, context, next(modest), resident=False))


def room(budgets: Budgets, machine: Machine) -> int:
    """Bytes that a model may take."""
    free = max(machine.free - machine.pending, 0)
    return max(free - machine.reserve, 0) if budgets.ram is None else min(budgets.ram, free)


def stays(needs: Needs, context: int, ram: int) -> bool:
    """Whether all of a model stays in so much memory, with chunks that are not too small."""
    least = min(SMALLEST_CHUNK, needs.chunks[0])
    return needs.resident(context, min(chunk for chunk in needs.chunks if chunk >= least)) <= ram


@dataclass(frozen=True)
class _Choice:
    wanted: int
    context: int
    chunk: int
    resident: bool


def _context(needs: Needs, info: ModelInfo, budgets: Budgets, machine: Machine, ram: int) -> int:
    """Positions to keep."""
    asked = positions(budgets, info)
    if budgets.context is not None:
        if needs.least(asked) > ram:
            raise too_little(needs, info.name, asked, ram, machine.reserve)
        return asked
    contexts = [asked]
    while contexts[-1] > SHORTEST:
        contexts.append(max(contexts[-1] // 2, SHORTEST))
    for context in contexts:
        last = context == contexts[-1]
        if needs.least(context) <= ram and (last or needs.kv(context) <= ram // 2):
            return context
    raise too_little(needs, info.name, contexts[-1], ram, machine.reserve)


def _told(needs: Needs, budgets: Budgets, machine: Machine, ram: int, choice: _Choice) -> tuple[Plan, Placement]:
    drive = machine.kept() if choice.resident else machine.drive()
    usual = drive or USUAL
    io_threads = budgets.io_threads or max(usual.threads, AT_ONCE)
    beside = needs.beside(choice.context, choice.chunk, choice.resident)
    arena = block = 0
    if not choice.resident:
        block = usual.block_bytes
        if budgets.block_rows is not None:
            block = min(block, needs.block_of(budgets.block_rows))
        block = max(block, needs.least_block)
        left = ram - beside - needs.held_always
        most = min(max(ram // SHARE, 2 * needs.least_block), left)
        arena = _in_large_pages(min((2 * io_threads + 1) * block, most), most)
        block = max(min(block, arena // 3 // PAGE * PAGE), needs.least_block)
    # What streams at all streams something: a model without lent weights records its passes, which takes more.
    room = needs.weights if choice.resident else min(ram - beside - arena, needs.weights - 1)
    tiers = place(needs.items, Costs(usual), vram=0, ram=room)
    placement = placement_of(
        needs.index,
        needs.items,
        tiers,
        needs.step,
        arena=arena,
        block_bytes=block,
        io_threads=io_threads,
        block_rows=budgets.block_rows,
    )
    flow = None
    if not choice.resident and drive is not None:
        flow = Flow(needs.items, tiers, drive, block, arena, budgets.block_rows)
    speeds = machine.speeds(weighty(needs.step)) if flow or choice.resident else None
    cached = SHORT * position_bytes(needs.model.caches, budgets.kv) + state_bytes(needs.model.caches)
    told = speeds and forecast(needs.step, flow, speeds, chunk=choice.chunk, cached=cached)
    made = Plan(
        ram=ram,
        vram=0,
        overhead=machine.overhead,
        reserve=machine.reserve if budgets.ram is None else 0,
        context=choice.context,
        kv_kind=budgets.kv,
        chunk=choice.chunk,
        weights=sum(tiers.ram.values()),
        experts=tiers.slab,
        arena=arena,
        kv=needs.kv(choice.context),
        activations=needs.activations(choice.context, choice.chunk, choice.resident),
        tables=needs.tables(choice.context),
        vision=needs.vision,
        io_threads=io_threads,
        block_bytes=block,
        block_rows=budgets.block_rows,
        placed=_placed(needs.items, tiers),
        passed_per_token=sum(needs.step.passed.values()),
        read_per_token=read_per_token(needs.items, tiers),
        disk=None if drive is None else drive.bandwidth,
        computing=told.computing if told else None,
        tok_s=told.tok_s if told else None,
        prefill_tok_s=told.prefill_tok_s if told else None,
        measured=machine.measured(),
        granted=budgets.ram,
        wanted=choice.wanted,
    )
    return made, placement


def _in_large_pages(arena: int, most: int) -> int:
    """As many whole large pages, into which drives read faster, as are nearest above or, up to `most`, below; where
    there is not one, as much as it is."""
    up = -(-arena // LARGE_PAGE) * LARGE_PAGE
    return up if up <= most else arena // LARGE_PAGE * LARGE_PAGE or arena


def _placed(items: list[Item], tiers: Tiers) -> tuple[Placed, ...]:
    sums: Counter[tuple[str, Tier]] = Counter()
    for item in items:
        sums[item.kind, "VRAM"] += tiers.vram.get(item.name, 0)
        sums[item.kind, "RAM"] += tiers.ram.get(item.name, 0)
        sums[item.kind, "disk"] += tiers.on_disk(item)
    order: tuple[Tier, ...] = ("VRAM", "RAM", "disk")
    return tuple(Placed(kind, tier, sums[kind, tier]) for tier in order for kind in KINDS if sums[kind, tier])
