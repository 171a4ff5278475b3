"""How a model runs and where its weights are, in the words and the table that the terminal and the window share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from engine.types import Plan, Tier
from engine.units import human_bytes

NOTHING = "–"

KINDS = {
    "embedding": "input embedding",
    "attention": "attention",
    "feed-forward": "feed-forward",
    "router": "choice of experts",
    "experts": "experts",
    "head": "output",
    "other": "other",
}
"""What the kinds of weights that a plan tells apart are called, in the order in which a token passes them."""


@dataclass(frozen=True)
class Table:
    """Bytes of each kind of weights in each tier that holds any; the last row is the total."""

    tiers: tuple[Tier, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The same as text, without the headings."""
        return tuple(
            (kind, *(human_bytes(nbytes) if nbytes else NOTHING for nbytes in sizes)) for kind, sizes in self.rows
        )


def table(plan: Plan) -> Table:
    """Kinds as a token passes them; tiers from the quickest on."""
    held: dict[str, dict[Tier, int]] = {kind: {} for kind in KINDS}
    for placed in plan.placed:
        kind = held[placed.what]
        kind[placed.tier] = kind.get(placed.tier, 0) + placed.nbytes
    tiers: tuple[Tier, ...] = tuple(
        tier for tier in get_args(Tier) if tier == "RAM" or any(kind.get(tier, 0) for kind in held.values())
    )
    rows = [(KINDS[what], tuple(kind.get(tier, 0) for tier in tiers)) for what, kind in held.items() if kind]
    total = tuple(sum(sizes[column] for _, sizes in rows) for column in range(len(tiers)))
    return Table(tiers, (*rows, ("total", total)))


def sentence(plan: Plan) -> str:
    """What the person has to expect."""
    about = f"; {speed(plan.tok_s)}." if plan.tok_s else "."
    if not plan.streams:
        return f"Fits into memory{about}"
    read, passed = human_bytes(plan.read_per_token), human_bytes(plan.passed_per_token)
    return f"Streams {read} of {passed} a token from disk{about}"


def speed(tok_s: float) -> str:
    """As exact as a prediction is."""
    if tok_s < 0.1:
        return f"one token in about {1 / tok_s:.0f} s"
    return f"about {tok_s:.2g} tokens/s" if tok_s < 9.95 else f"about {tok_s:.0f} tokens/s"


def parts(plan: Plan) -> tuple[tuple[str, int], ...]:
    """What the memory that is granted goes to, and what of it is left; without what takes nothing."""
    named = (
        ("weights", plan.weights),
        ("experts used lately", plan.experts),
        ("blocks on their way from disk", plan.arena),
        ("the conversation's keys and values", plan.kv),
        ("working memory", plan.activations),
        ("rotary positions", plan.tables),
        ("pictures", plan.vision),
    )
    left = plan.ram - sum(nbytes for _, nbytes in named)
    return tuple((what, nbytes) for what, nbytes in (*named, ("not needed", left)) if nbytes > 0)


def beside(plan: Plan) -> tuple[tuple[str, int], ...]:
    """What memory there is to tell of beside what is granted; without what there is none of."""
    named = (
        ("beside it, for the program itself", plan.overhead),
        ("left to other programs", plan.reserve),
        ("graphics memory granted", plan.vram),
    )
    return tuple((what, nbytes) for what, nbytes in named if nbytes > 0)
