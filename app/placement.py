"""How a model runs and where its weights are, in the words and the table that the terminal and the window share.

The window gives each function its own `tr`, which puts the words into the person's language.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from engine.types import Plan, Tier
from engine.units import human_bytes

Translate = Callable[[str], str]

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


def as_it_is(text: str) -> str:
    """The words of the terminal."""
    return text


def table(plan: Plan, tr: Translate = as_it_is) -> Table:
    """Kinds as a token passes them; tiers from the quickest on."""
    held: dict[str, dict[Tier, int]] = {kind: {} for kind in KINDS}
    for placed in plan.placed:
        kind = held[placed.what]
        kind[placed.tier] = kind.get(placed.tier, 0) + placed.nbytes
    tiers: tuple[Tier, ...] = tuple(
        tier for tier in get_args(Tier) if tier == "RAM" or any(kind.get(tier, 0) for kind in held.values())
    )
    rows = [(tr(KINDS[what]), tuple(kind.get(tier, 0) for tier in tiers)) for what, kind in held.items() if kind]
    total = tuple(sum(sizes[column] for _, sizes in rows) for column in range(len(tiers)))
    return Table(tiers, (*rows, (tr("total"), total)))


def sentence(plan: Plan, tr: Translate = as_it_is) -> str:
    """What the person has to expect."""
    told = {
        "speed": speed(plan.tok_s, tr) if plan.tok_s else "",
        "read": human_bytes(plan.read_per_token),
        "passed": human_bytes(plan.passed_per_token),
    }
    if not plan.streams:
        form = tr("Fits into memory; {speed}.") if plan.tok_s else tr("Fits into memory.")
    elif plan.tok_s:
        form = tr("Streams {read} of {passed} a token from disk; {speed}.")
    else:
        form = tr("Streams {read} of {passed} a token from disk.")
    return form.format(**told)


def granted_less(plan: Plan, tr: Translate = as_it_is) -> str:
    """A sentence where more memory was named than is free; else nothing."""
    named, free = human_bytes(plan.granted or 0), human_bytes(plan.ram)
    if plan.granted is None or plan.granted <= plan.ram or named == free:
        return ""
    return tr("{named} were granted, {free} are free: the plan uses that.").format(named=named, free=free)


def context_less(plan: Plan, tr: Translate = as_it_is) -> str:
    """A sentence where the context is shorter than it would be with more memory; else nothing."""
    if plan.context >= plan.wanted:
        return ""
    form = tr("Memory is short: the context is {context} tokens instead of {wanted}.")
    return form.format(context=f"{plan.context:,}", wanted=f"{plan.wanted:,}")


def even_routing(plan: Plan, tr: Translate = as_it_is) -> str:
    """A sentence where experts stream: what is read depends on the text."""
    if not any(placed.what == "experts" and placed.tier == "disk" and placed.nbytes for placed in plan.placed):
        return ""
    return tr("That is if all experts are chosen equally often; a text that comes back to the same ones is faster.")


def sentences(plan: Plan, tr: Translate = as_it_is) -> tuple[str, ...]:
    """What the person has to expect, and what there is less of than was wanted."""
    told = (sentence(plan, tr), even_routing(plan, tr), granted_less(plan, tr), context_less(plan, tr))
    return tuple(filter(None, told))


def a_token(passed: int, read: int) -> str:
    """What a step of decoding does with the weights."""
    return f"passes over {human_bytes(passed)} of weights, reads {human_bytes(read)} from disk"


def speed(tok_s: float, tr: Translate = as_it_is) -> str:
    """As exact as a prediction is."""
    if tok_s < 0.1:
        return tr("one token in about {n} s").format(n=f"{1 / tok_s:.0f}")
    number = f"{tok_s:.2g}" if tok_s < 9.95 else f"{tok_s:.0f}"
    return tr("about 1 token/s") if number == "1" else tr("about {n} tokens/s").format(n=number)


def parts(plan: Plan, tr: Translate = as_it_is) -> tuple[tuple[str, int], ...]:
    """What the memory that is granted goes to, and what of it is left; without what takes nothing."""
    named = (
        (tr("weights"), plan.weights),
        (tr("experts used lately"), plan.experts),
        (tr("blocks on their way from disk"), plan.arena),
        (tr("the conversation's keys and values"), plan.kv),
        (tr("working memory"), plan.activations),
        (tr("rotary positions"), plan.tables),
        (tr("pictures"), plan.vision),
    )
    left = plan.ram - sum(nbytes for _, nbytes in named)
    return tuple((what, nbytes) for what, nbytes in (*named, (tr("not needed"), left)) if nbytes > 0)


def beside(plan: Plan, tr: Translate = as_it_is) -> tuple[tuple[str, int], ...]:
    """What memory there is to tell of beside what is granted; without what there is none of."""
    named = (
        (tr("beside it, for the program itself"), plan.overhead),
        (tr("left to other programs"), plan.reserve),
        (tr("graphics memory granted"), plan.vram),
    )
    return tuple((what, nbytes) for what, nbytes in named if nbytes > 0)
