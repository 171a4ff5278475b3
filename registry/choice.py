"""Which model suits a machine: the best one whose answers come at a pleasant speed and that leaves it usable.

The rules are those that somebody who knows would go by. Speed is what a token waits for (`engine.memory.forecast`):
the bytes that it passes, by the bandwidth of where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from engine.errors import SettingsError
from engine.memory.forecast import together
from engine.units import human_bytes
from registry.catalogue import Entry
from registry.machine import MachineFacts
from registry.rough import CONTEXT, Rough, bits, rough

Where = Literal["card", "card and memory", "memory", "disk"]

PLEASANT: Final = 8.0
"""Tokens a second from which reading along is pleasant."""
ACCEPTABLE: Final = 4.0
"""Tokens a second that a clearly better model may come down to."""
CLEARLY: Final = 10.0
"""By how much of the rank such a model has to be better, at the least acceptable speed."""
QUICK: Final = (2.0, 3.0)
"""What each doubling beyond the pleasant speed adds to the rank, and the most that comes of it."""
THINKING: Final = 2.0
"""How much faster a model has to be that thinks before it answers, to be as pleasant."""
OFFERED: Final = 0.3
"""Tokens a second below which streaming is not even mentioned."""
ROOM_ON_DISK: Final = 5_000_000_000
"""Bytes that are left on the disk, or a tenth of what is free where that is more."""
SMALL: Final = 10_000_000_000
"""Parameters below which a model is never packed in fewer bits than `FEWEST`: small ones lose much by it."""
FEWEST: Final = 4.0
FINENESS: Final = ((8.0, 1.0), (6.0, 0.7), (5.3, 0.4), (4.0, 0.0), (3.2, -4.0), (0.0, -9.0))
"""What at least so many bits a weight add to the rank; our judgement."""
LEAST_FINE: Final = 1_500_000_000
"""Parameters below which four bits cost as much again as eight bits add."""
SEEING: Final = 1.0
"""What seeing pictures adds to the rank where nobody said."""
CONTEXTS: Final = (CONTEXT, CONTEXT // 2)
"""Positions, of which the shorter is for those that would not fit with the longer."""
CROWDED: Final = (0.6, 30.0)
"""Share of all memory beyond which a model is in the way of other programs, and by how much of the rank, for as much
again as all memory: three points for each tenth."""
BLOCKS: Final = 64 << 20
"""Bytes that weights stream through."""
FASTER: Final = 1.5
"""How much faster a runner-up is that is offered for its speed."""


@dataclass(frozen=True)
class Choice:
    """A model, as it would run: `tok_s` is predicted, `where` the slowest place that its weights lie in, `crowding` the
    share of all memory that it takes."""

    entry: Entry
    quantisation: str
    download: int
    where: Where
    tok_s: float
    crowding: float
    sees: bool

    @property
    def pace(self) -> float:
        """The speed, as it feels."""
        return self.tok_s / (THINKING if self.entry.thinks else 1)

    @property
    def label(self) -> str:
        about = f"about {_figure(self.tok_s)} tok/s"
        return {
            "card": f"fits the GPU, {about}",
            "card and memory": f"fits GPU and memory together, {about}",
            "memory": f"fits memory, {about}",
            "disk": f"streams from disk, {about}",
        }[self.where]

    @property
    def merit(self) -> float:
        """The rank, with what fineness, sight, speed and crowding add or take away."""
        shape, width = self.entry.shape, bits(self.quantisation)
        fineness = next(adds for least, adds in FINENESS if width >= least)
        if shape.parameters < LEAST_FINE and width < FINENESS[0][0]:
            fineness -= FINENESS[0][1]
        if self.pace < PLEASANT:
            speed = (self.pace - PLEASANT) / (PLEASANT - ACCEPTABLE) * CLEARLY
        else:
            speed = min(QUICK[0] * math.log2(self.pace / PLEASANT), QUICK[1])
        crowding = max(self.crowding - CROWDED[0], 0) * CROWDED[1]
        return self.entry.rank + fineness + (SEEING if self.sees else 0) + speed - crowding


@dataclass(frozen=True)
class Recommendation:
    """`why` is one sentence. `runners_up` are other choices: a better one that streams, a faster one, one of another
    family."""

    choice: Choice
    why: str
    runners_up: tuple[Choice, ...]

    @property
    def entry(self) -> Entry:
        return self.choice.entry

    @property
    def quantisation(self) -> str:
        return self.choice.quantisation


def recommend(entries: Sequence[Entry], machine: MachineFacts, *, vision: bool | None = None) -> Recommendation:
    """The model to take. `vision` asks for one that sees pictures, or for text alone; `None` leaves it open.

    A machine too small or too slow for any gets the one that is fastest there. Raises SettingsError where the list has
    no model of the kind, or the disk or the memory no room for the smallest.
    """
    able = [entry for entry in entries if entry.sees or not vision]
    if not able:
        raise SettingsError("The list of models has none that sees pictures: choose a model for text.")
    run = [choice for entry in able for choice in _choices(entry, machine, vision)]
    choices = [choice for choice in run if _on_disk(choice.download, machine)]
    if not run:
        raise SettingsError(
            f"This computer can give {human_bytes(machine.room)} of memory to a model, which is too little for any, "
            "even from disk: close other programs, or raise the limit of the container."
        )
    if not choices:
        raise SettingsError(
            "The disk with the models folder has too little room for any model, of which the smallest takes about "
            f"{human_bytes(min(choice.download for choice in run))} and {human_bytes(ROOM_ON_DISK)} are kept free: "
            "free some, or choose another folder."
        )
    held = [choice for choice in choices if choice.where != "disk"]
    good = [choice for choice in held if choice.pace >= ACCEPTABLE]
    best = max(good, key=_merit) if good else max(held or choices, key=lambda choice: (choice.pace, _merit(choice)))
    return Recommendation(best, _why(best), _others(best, choices, good))


def fits(entry: Entry, quantisation: str, machine: MachineFacts, *, sees: bool) -> Choice | None:
    """How a model would run, with cards or without them, whichever is quicker; `None` where not even the room for
    streaming it is there."""
    size = rough(entry, quantisation)
    download = size.file + (size.tower if sees else 0)
    found = []
    for context in CONTEXTS:
        beside = size.beside(min(context, entry.context), sees=sees)
        for computing in (machine, replace(machine, vram_usable=0, shared=False)):
            if (run := _run(size, computing, beside)) is not None:
                crowding = run.memory / max(machine.ram_total, 1)
                found.append(Choice(entry, quantisation, download, run.where, run.tok_s, crowding, sees))
        if any(choice.where != "disk" for choice in found):
            break
    return max(found, key=lambda choice: (choice.where != "disk", choice.tok_s), default=None)


def _choices(entry: Entry, machine: MachineFacts, vision: bool | None) -> list[Choice]:
    """Of each quantisation that is fine enough and runs."""
    small, sees = entry.shape.parameters < SMALL, entry.sees and vision is not False
    fine = [name for name in entry.quantisations if not small or bits(name) >= FEWEST]
    return [choice for name in fine if (choice := fits(entry, name, machine, sees=sees)) is not None]


def _on_disk(download: int, machine: MachineFacts) -> bool:
    free = machine.disk_free
    return free is None or download <= free - max(ROOM_ON_DISK, free // 10)


@dataclass(frozen=True)
class _Run:
    where: Where
    tok_s: float
    memory: int


def _run(size: Rough, machine: MachineFacts, beside: int) -> _Run | None:
    """Where the weights would lie, and what follows; `None` where the memory is too little even to stream.

    A card takes what every token passes, then experts, then tables; what is left goes to memory, in the same order,
    and what that does not hold comes from disk, through blocks in memory. What is beside the weights is where the
    computing is.
    """
    card, ram = max(machine.vram_usable - beside, 0), machine.room
    if machine.shared:
        card, ram = min(card, max(ram - beside, 0)), 0
    if not card:
        ram = machine.room - beside
    if card + ram < min(size.weights, BLOCKS):
        return None
    streams = size.weights > card + ram
    if streams:
        card, ram = (card, ram - BLOCKS) if ram > BLOCKS else (max(card - BLOCKS, 0), ram)
    uses_card, computed_in_memory = card > 0, machine.shared or not card
    room, passed = {"card": card, "memory": ram}, {"card": 0.0, "memory": 0.0, "disk": 0.0}
    for nbytes, active in ((size.dense, size.dense), (size.experts, size.active_experts), (size.tables, 0)):
        left = nbytes
        for place in ("card", "memory"):
            held = min(left, room[place])
            room[place] -= held
            left -= held
            passed[place] += held * active / max(nbytes, 1)
        passed["disk"] += left * active / max(nbytes, 1)
    computing, read = round(passed["memory"] + passed["disk"]), round(passed["disk"])
    seconds = together(computing / machine.memory_bandwidth, read / machine.disk_bandwidth)
    seconds += passed["card"] / machine.vram_bandwidth if passed["card"] else 0.0
    memory = ram - room["memory"] + (beside if computed_in_memory else 0)
    memory += card - room["card"] if machine.shared else 0
    where: Where = "disk" if streams else "memory" if not uses_card else "card and memory" if computing else "card"
    return _Run(where, 1 / seconds, memory)


def _merit(choice: Choice) -> float:
    return choice.merit


def _others(best: Choice, choices: Sequence[Choice], good: Sequence[Choice]) -> tuple[Choice, ...]:
    """At most one of each kind: a better one that streams, a faster one, one of another family."""
    held = {each.entry.id for each in choices if each.where != "disk"}
    better = [
        each
        for each in choices
        if each.entry.id not in held and each.tok_s >= OFFERED and each.entry.rank > best.entry.rank
    ]
    faster = [each for each in good if each.pace >= FASTER * best.pace]
    relations = [each for each in good if each.entry.family != best.entry.family]
    found: list[Choice] = []
    if better:
        # Of those that are as slow as this, the best; of those that are slower still, the fastest.
        found.append(max(better, key=lambda each: (min(each.tok_s, 1.0), each.merit)))
    for group in (faster, relations):
        taken = {best.entry.id, *(each.entry.id for each in found)}
        left = [each for each in group if each.entry.id not in taken]
        if left:
            found.append(max(left, key=_merit))
    return tuple(found)


def _why(best: Choice) -> str:
    name, speed = best.entry.name, f"about {_figure(best.tok_s)} tokens a second"
    place = {
        "card": "fits the memory of the graphics card",
        "card and memory": "fits the graphics card and the memory together",
        "memory": "fits the memory",
        "disk": "streams from disk",
    }[best.where]
    if best.where == "disk":
        return f"No model fits the memory of this computer, and of those that stream from disk {name} is the quickest."
    if best.pace < ACCEPTABLE:
        return f"{name} is the quickest that fits the memory of this computer, which is slow for language models."
    if best.pace < PLEASANT:
        return f"{name} {place} and is so much better than quicker ones that {speed} are worth the wait."
    few = best.entry.shape.experts and best.where != "card"
    since = ", since only a part of it is computed for each word" if few else ""
    return f"{name} is the best that this computer runs at a pleasant speed: it {place}, with {speed}{since}."


def _figure(tok_s: float) -> str:
    return f"{tok_s:.0f}" if tok_s >= 9.5 else f"{tok_s:.1f}"
