"""What is said where a model does not fit into the memory: the least that is enough, and the ways out."""

from __future__ import annotations

from typing import Final

from engine.address_space import binds, raise_it
from engine.errors import BudgetError
from engine.kernels.kv import holds
from engine.kernels.ops import CacheSpec
from engine.memory.needs import Needs
from engine.units import human_bytes, plural

SENSIBLE: Final = 256
"""Positions below which no context is offered: a question and a short answer have room in so many."""
STEP: Final = 64
"""Positions that lengths which are offered are multiples of."""


def too_little(needs: Needs, name: str, context: int, ram: int, reserve: int) -> BudgetError:
    """For the model of this `name` with a context that does not fit into `ram`. Where no memory was named, `reserve` is
    left to other programs beside it.

    Ways out are a shorter context and the q8_0 cache, as far as they help. Where neither does, the least memory is
    named that a short context needs.
    """
    budgets, least = needs.budgets, needs.least(context)
    asked = f"a context of {_tokens(context)}"
    if budgets.context is not None:
        cache = human_bytes(needs.kv(context) + needs.tables(context))
        what = f"With {asked}, which {'takes' if context == 1 else 'take'} {cache}, {name} needs"
        needed = f"{at_least(least)} of memory"
    else:
        what, needed = f"{name} needs", f"{at_least(least)} of memory for {asked}"
    ways = _less_context(needs, context, ram)
    hint = "" if ways else _hint(needs, context)
    if needs.eyes is not None and least - needs.vision <= ram:
        tower = needs.eyes.index.paths[0].name
        ways.append(f"move its vision tower {tower}, which takes {human_bytes(needs.vision)}, elsewhere")
    if budgets.ram is None or budgets.ram > ram:
        smaller = "" if budgets.context is not None else " or choose a smaller model"
        closing = raise_it().removesuffix(", or ") if binds() else "close other programs"
        ways.append(f"{closing}{smaller}")
        given = "can be had" if budgets.ram is not None else f"is free beside {human_bytes(reserve)} for others"
    else:
        ways.append("grant more memory")
        given = "is granted"
    return BudgetError(f"{what} at least {needed}, but {human_bytes(ram)} {given}: {', or '.join(ways)}.{hint}")


def _less_context(needs: Needs, context: int, ram: int) -> list[str]:
    """What there is to ask for instead of this context in this cache, as far as it fits."""
    ways = []
    least = min(SENSIBLE, context)
    fits = _longest(needs, context, ram, needs.budgets.kv)
    packed = _longest(needs, context, ram, "q8_0") if _can_pack(needs) else 0
    if fits >= least:
        ways.append(f"ask for a context of at most {_tokens(fits)}")
    if packed >= context:
        ways.append("choose the q8_0 cache")
    elif packed >= least and packed > fits:
        ways.append(f"choose the q8_0 cache and at most {_tokens(packed)}")
    return ways


def _hint(needs: Needs, context: int) -> str:
    """A sentence with the least that a short context needs, if that is less."""
    short, packs = min(SENSIBLE, context), _can_pack(needs)
    least = _least(needs, short, "q8_0" if packs else needs.budgets.kv)
    if least >= needs.least(context):
        return ""
    return f" A context of {_tokens(short)}{' in the q8_0 cache' if packs else ''} needs {at_least(least)}."


def _can_pack(needs: Needs) -> bool:
    """Whether the q8_0 cache can take the place of the one that was chosen."""
    caches = (spec for spec in needs.model.caches if isinstance(spec, CacheSpec))
    return needs.budgets.kv != "q8_0" and all(holds(spec, "q8_0") for spec in caches)


def _least(needs: Needs, context: int, kind: str) -> int:
    """The least memory with a cache of this kind."""
    return needs.least(context) - needs.kv(context) + needs.kv_as(context, kind)


def _longest(needs: Needs, context: int, ram: int, kind: str) -> int:
    """The most positions up to `context`, by whole steps, that fit with a cache of this kind; 0 where none do."""
    if _least(needs, context, kind) <= ram:
        return context
    low, high = 0, context // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if _least(needs, middle * STEP, kind) <= ram:
            low = middle
        else:
            high = middle - 1
    return low * STEP


def _tokens(count: int) -> str:
    return f"{count} {plural(count, 'token')}"


def at_least(nbytes: int) -> str:
    """As `human_bytes`, but rounded up, so that so much is enough."""
    digits = len(str(nbytes))
    step = 10 ** max(3 * ((digits - 1) // 3) - 1, 0)
    return human_bytes(-(-nbytes // step) * step)
