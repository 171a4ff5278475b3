"""Policies of which experts of a mixture to keep in memory, to be compared with the engine's own.

Each reads an expert that it does not keep, and throws out none that the pass under way uses in the same layer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bench.routing import Trace

Keys = npt.NDArray[np.int64]
NEVER = 1 << 40


@dataclass(frozen=True)
class Asked:
    """Experts of one layer that one pass uses, as ascending keys `layer · n_experts + expert`.

    `next` is when each is used again, counted in layers passed.
    """

    number: int
    when: int
    layer: int
    keys: Keys
    next: Keys
    decoding: bool


def asked(trace: Trace) -> list[Asked]:
    """What the trace asks for, in order."""
    layers = trace.ids.shape[1]
    steps = [
        (number, layer, np.unique(trace.ids[start:stop, layer]).astype(np.int64), stop - start == 1)
        for number, (start, stop) in enumerate(trace.passes)
        for layer in range(layers)
    ]
    again = np.full((layers, trace.n_experts), NEVER)
    found = []
    for when in reversed(range(len(steps))):
        number, layer, ids, decoding = steps[when]
        found.append(Asked(number, when, layer, layer * trace.n_experts + ids, again[layer, ids], decoding))
        again[layer, ids] = when
    return found[::-1]


class Cache(Protocol):
    """A policy at work over rooms of equal size."""

    def ask(self, step: Asked) -> int:
        """How many of them were there."""
        ...


class Scored:
    """Keeps the experts with the highest scores, which their uses change.

    One that is not there comes in where its score is above the lowest of those that may be thrown out.
    """

    def __init__(self, rooms: int, keys: Keys) -> None:
        self.own = keys
        self.free = rooms
        size = int(keys.max()) + 1
        self.score, self.kept = np.zeros(size), np.zeros(size, bool)

    def use(self, step: Asked) -> None:
        raise NotImplementedError

    def ask(self, step: Asked) -> int:
        self.use(step)
        there = self.kept[step.keys]
        leaving = None
        for key in step.keys[~there]:
            if self.free:
                self.free -= 1
            else:
                if leaving is None:
                    leaving = np.where(self.kept, self.score, np.inf)
                    leaving[step.keys] = np.inf
                    leaving = leaving[self.own]
                place = int(leaving.argmin())
                if not self.score[key] > leaving[place]:
                    continue
                leaving[place] = np.inf
                self.kept[self.own[place]] = False
            self.kept[key] = True
        return int(there.sum())


class Lru(Scored):
    def use(self, step: Asked) -> None:
        self.score[step.keys] = step.when + 1


class Lfu(Scored):
    """Of those used equally often, the one used last stays."""

    def use(self, step: Asked) -> None:
        self.score[step.keys] = np.floor(self.score[step.keys]) + 1 + (step.when + 1) / (1 << 24)


class Lru2(Scored):
    """By the last use but one (O'Neil, O'Neil and Weikum, 1993), of all experts, also of those that left."""

    def __init__(self, rooms: int, keys: Keys) -> None:
        super().__init__(rooms, keys)
        self.last = np.zeros_like(self.score)

    def use(self, step: Asked) -> None:
        self.score[step.keys] = self.last[step.keys] + (step.when + 1) / (1 << 24)
        self.last[step.keys] = step.when + 1


class Faded(Scored):
    """Uses in the last passes: each counts half after so many passes, in counts of different weights."""

    def __init__(self, rooms: int, keys: Keys, halved: Sequence[float], weights: Sequence[float]) -> None:
        super().__init__(rooms, keys)
        self.uses = np.zeros((len(halved), len(self.score)))
        self.halved, self.weights, self.number = np.array(halved)[:, None], np.array(weights), 0

    def use(self, step: Asked) -> None:
        self.uses *= 0.5 ** ((step.number - self.number) / self.halved)
        self.number = step.number
        self.uses[:, step.keys] += 1
        self.score = self.weights @ self.uses


class Pinned(Scored):
    """Those used most in the first passes, and no others from then on."""

    def __init__(self, rooms: int, keys: Keys, passes: int) -> None:
        super().__init__(rooms, keys)
        self.passes = passes

    def use(self, step: Asked) -> None:
        if step.number < self.passes:
            self.score[step.keys] += 1
        else:
            self.score[step.keys[~self.kept[step.keys]]] = 0


class Belady(Scored):
    """The bound where all experts have one size (Belady, 1966): those stay that are asked for soonest."""

    def use(self, step: Asked) -> None:
        self.score[step.keys] = -step.next


class Arc:
    """Megiddo and Modha, ARC: a self-tuning, low overhead replacement cache (2003), figure 4."""

    def __init__(self, rooms: int, keys: Keys) -> None:
        self.c, self.p = rooms, 0.0
        self.t1: OrderedDict[int, None] = OrderedDict()
        self.t2: OrderedDict[int, None] = OrderedDict()
        self.b1: OrderedDict[int, None] = OrderedDict()
        self.b2: OrderedDict[int, None] = OrderedDict()

    def ask(self, step: Asked) -> int:
        keys = step.keys.tolist()
        held = set(keys)
        found = 0
        for key in keys:
            if key in self.t1:
                del self.t1[key]
                self.t2[key] = None
                found += 1
            elif key in self.t2:
                self.t2.move_to_end(key)
                found += 1
        for key in keys:
            if key not in self.t1 and key not in self.t2:
                self.miss(key, held)
        return found

    def miss(self, key: int, held: set[int]) -> None:
        full = len(self.t1) + len(self.t2) >= self.c
        if key in self.b1 or key in self.b2:
            first = key in self.b1
            one, two = len(self.b1), len(self.b2)
            self.p = min(self.c, self.p + max(1, two / one)) if first else max(0, self.p - max(1, one / two))
            if full and not self.replace(not first, held):
                return
            del (self.b1 if first else self.b2)[key]
            self.t2[key] = None
            return
        if full and not self.replace(False, held):
            return
        if len(self.t1) + len(self.b1) >= self.c and self.b1:
            self.b1.popitem(last=False)
        elif len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2) >= 2 * self.c and self.b2:
            self.b2.popitem(last=False)
        self.t1[key] = None

    def replace(self, second: bool, held: set[int]) -> bool:
        from_first = bool(self.t1) and (len(self.t1) > self.p or (second and len(self.t1) == self.p))
        pairs = [(self.t1, self.b1), (self.t2, self.b2)]
        for kept, ghosts in pairs if from_first else pairs[::-1]:
            victim = next((key for key in kept if key not in held), None)
            if victim is not None:
                del kept[victim]
                ghosts[victim] = None
                return True
        return False
