"""Which experts of a mixture to keep in memory: policies over traces of routing, as Markdown tables of hit rates.

    python -m bench.expert_cache                                            made-up routing alone
    python -m bench.expert_cache --model MIXTURE.gguf --text PROSE.txt …    and what this model's routers choose
    python -m bench.expert_cache --cost                                     what the engine's bookkeeping takes

A rate is the share of the bytes of experts asked for that was in memory, over a whole conversation and, in brackets,
over its replies alone. Routers of a model with random weights stand in for trained ones: they follow the tokens, but
nothing has taught them to be even or to specialise. The made-up routing has the skew that was reported of a trained
Qwen3-30B-A3B, whose choices last from token to token as long as it needs to be so uneven.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.accuracy import PROSE
from bench.cache_policies import Arc, Asked, Belady, Cache, Faded, Keys, Lfu, Lru, Lru2, Pinned, asked
from bench.routing import TURNS, Skew, Trace, made_up, recorded, uneven
from engine import MillstreamError
from engine.checks import check_count
from engine.memory.slabs import HALVED_AFTER, WEIGHTS, Slabs

TRAINED = Skew(popular=0.8, topical=0.8, lasting=0.6)
"""Near what was reported of a trained model: 57 % of all routings, 85.7 % and 37.5 % (`bench.routing.uneven`)."""
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


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


@dataclass(frozen=True)
class Row:
    """A policy's rates for each of `SHARES`."""

    rooms: str
    policy: str
    rates: tuple[tuple[float, float], ...]


def measure(trace: Trace) -> Iterator[Row]:
    steps = asked(trace)
    for policy in policies(warm_up=sum(TURNS[0])):
        figures = tuple(rates(trace, steps, policy, share) for share in SHARES)
        yield Row("a layer" if policy.by_layer else "all", policy.name, figures)


def table(trace: Trace, rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown."""
    _, layers, k = trace.ids.shape
    busiest, same, other = uneven(trace)
    yield f"\n**{trace.name}**: {layers} layers, {k} of {trace.n_experts} experts, {len(trace.ids)} tokens."
    yield f"The busiest fifth of the experts has {busiest:.1%} of the routings; a fifth chosen by 24 tokens serves"
    yield f"{same:.1%} of theirs and {other:.1%} of another turn's.\n"
    yield "| rooms of | policy | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"
    yield "|---|---|" + "---|" * len(SHARES)
    for row in rows:
        cells = (f"{100 * whole:.1f} ({100 * replies:.1f})" for whole, replies in row.rates)
        yield f"| {row.rooms} | {row.policy} | " + " | ".join(cells) + " |"


def summary(tables: Sequence[Sequence[Row]]) -> Iterator[str]:
    """How far each policy is behind the best of a trace and a size, bound aside, in points of the whole's rate."""
    wholes = np.array([[[whole for whole, _ in row.rates[1:]] for row in rows] for rows in tables])
    online = [index for index, row in enumerate(tables[0]) if row.policy != "Belady"]
    behind = 100 * (wholes[:, online].max(axis=1, keepdims=True) - wholes)
    yield f"\nPoints behind the best, from {SHARES[1]:.0%} on:\n"
    yield "| rooms of | policy | mean | worst |\n|---|---|---|---|"
    for index in online:
        row = tables[0][index]
        yield f"| {row.rooms} | {row.policy} | {behind[:, index].mean():.1f} | {behind[:, index].max():.1f} |"


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
        tables = []
        for trace in traces(arguments.model, text, arguments.tokens):
            tables.append(list(measure(trace)))
            print(*table(trace, tables[-1]), sep="\n", flush=True)
        print(*summary(tables), sep="\n")
    except (MillstreamError, OSError) as error:
        raise SystemExit(f"bench.expert_cache: {error}") from error


if __name__ == "__main__":
    main()
