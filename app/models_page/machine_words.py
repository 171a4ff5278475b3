"""What a probe of the machine found, in the words of the page. No Qt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.models_page.figures import size
from app.placement import Translate, as_it_is

if TYPE_CHECKING:
    from registry.probe import Battery, Gpu, Memory, Probe, Processor, Storage, System


@dataclass(frozen=True)
class Block:
    """One part of the machine: what it is, what is known of it, and sentences on what is wrong with it."""

    part: str
    title: str
    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def blocks(probe: Probe, tr: Translate = as_it_is) -> tuple[Block, ...]:
    """From what matters most for how a model runs to what matters least."""

    def block(field: str, part: str, told: Iterator[str], more: tuple[str, ...] = ()) -> Block:
        title, *lines = told
        wrong = tuple(problem.sentence for problem in probe.problems if problem.part == field)
        return Block(part, title, tuple(line for line in lines if line), (*more, *wrong))

    found = [
        block("memory", tr("Memory"), _memory(probe.memory, tr)),
        block("processor", tr("Processor"), _processor(probe.processor, tr), _cannot(probe.processor, tr)),
        block("storage", tr("Drive of the models"), _storage(probe.storage, tr)),
    ]
    if not probe.gpus:
        found.append(block("gpus", tr("Graphics"), iter((tr("No graphics card was found."), _not_needed(tr)))))
    for number, gpu in enumerate(probe.gpus):
        # What is wrong with the cards is told once, below the last of them.
        field = "gpus" if number == len(probe.gpus) - 1 else ""
        found.append(block(field, tr("Graphics") if number == 0 else "", _gpu(gpu, tr)))
    if probe.battery is not None:
        found.append(block("battery", tr("Battery"), _battery(probe.battery, tr)))
    found.append(block("system", tr("System"), _system(probe.system, tr)))
    told = ("memory", "processor", "storage", "gpus", "battery", "system")
    if rest := tuple(problem.sentence for problem in probe.problems if problem.part not in told):
        found.append(Block(tr("Also"), "", (), rest))
    return tuple(found)


def _memory(memory: Memory, tr: Translate) -> Iterator[str]:
    if not memory.total:
        yield tr("not known")
        return
    yield size(memory.total)
    yield tr("{size} of it free now").format(size=size(memory.free))
    if memory.total < memory.installed:
        yield tr("A container grants no more of the {size} of this computer.").format(size=size(memory.installed))


def _processor(processor: Processor, tr: Translate) -> Iterator[str]:
    yield processor.name or tr("not known")
    cores = tr("1 core") if processor.cores == 1 else tr("{n} cores").format(n=processor.cores)
    threads = tr("1 thread") if processor.threads == 1 else tr("{n} threads").format(n=processor.threads)
    yield tr("{cores}; Millstream computes in {threads}").format(cores=cores, threads=threads)
    if processor.quota is not None:
        yield tr("A container grants the time of {n} of them.").format(n=f"{processor.quota:g}")
    yield " · ".join(part for part in (processor.architecture, " ".join(processor.instructions)) if part)


def _cannot(processor: Processor, tr: Translate) -> tuple[str, ...]:
    lacking = tr("Millstream has nothing that computes on this processor, so no model runs here.")
    return () if processor.kernels else (lacking,)


def _storage(storage: Storage, tr: Translate) -> Iterator[str]:
    yield storage.folder
    yield {
        "ready": "",
        "new": tr("not there yet; it is made when the first model comes"),
        "drive missing": tr("not connected"),
        "unreadable": tr("it cannot be read"),
    }[storage.state]
    if storage.total is not None and storage.free is not None:
        yield tr("{free} free of {total}").format(free=size(storage.free), total=size(storage.total))
    kinds = (
        {True: tr("hard disk"), False: tr("solid state"), None: ""}[storage.rotating],
        tr("removable") if storage.removable else "",
        tr("on the network") if storage.network else "",
        storage.file_system,
    )
    rate = storage.read_rate
    reads = tr("reads {size}/s").format(size=size(round(rate))) if rate else tr("how fast it reads is not known yet")
    yield " · ".join(each for each in (*kinds, reads if storage.state in ("ready", "new") else "") if each)


def _gpu(gpu: Gpu, tr: Translate) -> Iterator[str]:
    yield gpu.name
    if gpu.total is not None:
        own = tr("{size} of the computer's memory") if gpu.shared else tr("{size} of its own memory")
        free = "" if gpu.free is None else ", " + tr("{size} free now").format(size=size(gpu.free))
        yield own.format(size=size(gpu.total)) + free
    elif gpu.shared:
        yield tr("shares the computer's memory")
    else:
        yield tr("its memory is not known")
    driver = tr("driver {name}").format(name=gpu.driver) if gpu.driver else tr("no driver")
    yield " · ".join(part for part in (driver, gpu.architecture) if part)
    yield tr("Used.") if gpu.usable else tr("Not used. {why}").format(why=gpu.why_not)


def _not_needed(tr: Translate) -> str:
    return tr("None is needed: models run on the processor.")


def _battery(battery: Battery, tr: Translate) -> Iterator[str]:
    yield f"{battery.percent} %"
    yield {True: tr("plugged in"), False: tr("running on it: models may be slower"), None: ""}[battery.plugged_in]


def _system(system: System, tr: Translate) -> Iterator[str]:
    yield " ".join(part for part in (system.name, system.version) if part) or tr("not known")
    yield f"Millstream {system.program} · Python {system.python}"
