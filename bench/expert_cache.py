"""Which experts of a mixture to keep in memory: policies over traces of routing, as Markdown tables of hit rates.

    python -m bench.expert_cache                                    made-up routing alone
    python -m bench.expert_cache --model MIXTURE.gguf --text PROSE.txt …    and what this model's routers choose
    python -m bench.expert_cache --cost                             what one find and one admission cost

A rate is the share of the bytes of experts asked for that was in memory, over a whole conversation and, in brackets,
over its replies alone. Routers of a model with random weights stand in for trained ones: they follow the tokens, but
nothing has taught them to be even or to specialise. The made-up routing has the skew that was reported of a trained
Qwen3-30B-A3B (`bench.routing`). Every policy reads an expert that it does not keep, and throws out none that the
pass under way uses in the same layer.
"""

from __future__ import annotations

import argparse
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bench.accuracy import PROSE
from bench.routing import TURNS, Skew, Trace, made_up, recorded, uneven
from engine import MillstreamError
from engine.checks import check_count
from engine.memory.slabs import HALVED_AFTER, WEIGHTS, Slabs

Keys = npt.NDArray[np.int64]
NEVER = 1 << 40
TRAINED = Skew(popular=0.8, topical=0.8, lasting=0.6)
"""Near what was reported of a trained model: 57 % of all routings, 85.7 % and 37.5 % (`bench.routing.uneven`)."""
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


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


@dataclass(frozen=True)
class Policy:
    """Rooms of its own for each layer, or one lot for all layers whose experts have one size."""

    name: str
    make: Callable[[int, Keys], Cache]
    by_layer: bool = True

    def over(self, trace: Trace, nbytes: int) -> Callable[[Asked], int]:
        caches: dict[int, Cache] = {}
        for rooms, layers in self._lots(trace, nbytes):
            first = np.arange(trace.n_experts)
            cache = self.make(rooms, np.concatenate([layer * trace.n_experts + first for layer in layers]))
            caches.update(dict.fromkeys(layers, cache))
        return lambda step: caches[step.layer].ask(step)

    def _lots(self, trace: Trace, nbytes: int) -> Iterator[tuple[int, list[int]]]:
        """The number of rooms and the layers that share them."""
        layers = range(len(trace.nbytes))
        if self.by_layer:
            each, left = divmod(nbytes, sum(trace.nbytes))
            more = left // max(trace.nbytes)
            yield from ((each + (layer < more), [layer]) for layer in layers)
            return
        for size in sorted(set(trace.nbytes)):
            same = [layer for layer in layers if trace.nbytes[layer] == size]
            yield int(nbytes * len(same) * trace.n_experts / trace.total), same


class Ours:
    """`engine.memory.slabs` itself, whose rooms nobody fills."""

    name, by_layer = "Slabs", True

    def over(self, trace: Trace, nbytes: int) -> Callable[[Asked], int]:
        slabs = Slabs(nbytes, trace.n_experts, dict(enumerate(trace.nbytes)))

        def ask(step: Asked) -> int:
            ids = (step.keys - step.layer * trace.n_experts).tolist()
            slabs.begin(step.layer, ids)
            missed = [expert for expert in ids if slabs.find(step.layer, expert) is None]
            for expert in missed:
                slabs.admit(step.layer, expert, trace.nbytes[step.layer])
            return len(ids) - len(missed)

        return ask


def policies(warm_up: int) -> Iterator[Policy | Ours]:
    kinds: dict[str, Callable[[int, Keys], Cache]] = {
        "LRU": Lru,
        "LFU": Lfu,
        "LFU, halved after 8": partial(Faded, halved=(8,), weights=(1.0,)),
        "LFU, halved after 32": partial(Faded, halved=(32,), weights=(1.0,)),
        "LRU-2": Lru2,
        "ARC": Arc,
        "pins from a warm-up": partial(Pinned, passes=warm_up),
        "halved after 1 and 32": partial(Faded, halved=HALVED_AFTER, weights=WEIGHTS),
        "Belady": Belady,
    }
    for by_layer in (False, True):
        yield from (Policy(name, make, by_layer) for name, make in kinds.items())
    yield Ours()


def rates(trace: Trace, steps: Sequence[Asked], policy: Policy | Ours, share: float) -> tuple[float, float]:
    """Bytes found to bytes asked for, of everything and of replies."""
    ask = policy.over(trace, int(share * trace.total))
    found, total = np.zeros(2), np.zeros(2)
    for step in steps:
        size = trace.nbytes[step.layer]
        found[int(step.decoding)] += ask(step) * size
        total[int(step.decoding)] += len(step.keys) * size
    return float(found.sum() / total.sum()), float(found[1] / total[1])


def table(trace: Trace) -> Iterator[str]:
    """Lines of a Markdown table, a policy each."""
    steps = asked(trace)
    _, layers, k = trace.ids.shape
    busiest, same, other = uneven(trace)
    yield f"\n**{trace.name}**: {layers} layers, {k} of {trace.n_experts} experts, {len(trace.ids)} tokens."
    yield f"The busiest fifth of the experts has {busiest:.1%} of the routings; a fifth chosen by 24 tokens serves"
    yield f"{same:.1%} of theirs and {other:.1%} of another turn's.\n"
    yield "| rooms of | policy | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"
    yield "|---|---|" + "---|" * len(SHARES)
    for policy in policies(warm_up=sum(TURNS[0])):
        figures = (rates(trace, steps, policy, share) for share in SHARES)
        cells = (f"{100 * whole:.1f} ({100 * replies:.1f})" for whole, replies in figures)
        yield f"| {'a layer' if policy.by_layer else 'all'} | {policy.name} | " + " | ".join(cells) + " |"


def cost() -> str:
    """What the bookkeeping takes, over the replies of a made-up conversation with a fifth of the experts in memory."""
    trace = made_up("", TRAINED, tokens=1500)
    slabs = Slabs(trace.total // 5, trace.n_experts, dict(enumerate(trace.nbytes)))
    spent, calls = np.zeros(3), np.zeros(3, int)
    for step in asked(trace):
        if not step.decoding:
            continue
        ids = (step.keys - step.layer * trace.n_experts).tolist()
        times = [time.perf_counter()]
        slabs.begin(step.layer, ids)
        times.append(time.perf_counter())
        missed = [expert for expert in ids if slabs.find(step.layer, expert) is None]
        times.append(time.perf_counter())
        for expert in missed:
            slabs.admit(step.layer, expert, trace.nbytes[step.layer])
        times.append(time.perf_counter())
        spent += np.diff(times)
        calls += (1, len(ids), len(missed))
    begin, find, admit = spent / calls * 1e6
    return f"begin {begin:.1f} µs for a layer, find {find:.2f} µs, admit {admit:.1f} µs"


def traces(models: Sequence[Path], text: str, tokens: int) -> Iterator[Trace]:
    yield made_up("as a trained model's, choices last", TRAINED, tokens=tokens)
    yield made_up("as before, no choice lasts", replace(TRAINED, lasting=0.0), tokens=tokens)
    yield made_up("topics rule", Skew(popular=0.3, topical=1.2, lasting=0.3), tokens=tokens)
    yield made_up("layers of two sizes", replace(TRAINED, lasting=0.3), tokens=tokens, nbytes=(936 << 10, 1152 << 10))
    yield from (recorded(model, text, tokens) for model in models)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="a GGUF file of a mixture")
    parser.add_argument("--text", type=Path, nargs="+", default=[PROSE], help="what such a model reads")
    parser.add_argument("--tokens", type=int, default=3600)
    parser.add_argument("--cost", action="store_true", help="time the bookkeeping instead")
    arguments = parser.parse_args()
    try:
        check_count("--tokens", arguments.tokens)
        if arguments.cost:
            print(cost())
            return
        text = "\n".join(path.read_text("utf-8") for path in arguments.text)
        for trace in traces(arguments.model, text, arguments.tokens):
            for line in table(trace):
                print(line, flush=True)
    except (MillstreamError, OSError) as error:
        raise SystemExit(f"bench.expert_cache: {error}") from error


if __name__ == "__main__":
    main()
