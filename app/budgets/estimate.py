"""How a model would run with some budgets, and what there is to choose from. No Qt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from app.models_page.fitness import Fitness
from engine.types import Budgets, Plan

if TYPE_CHECKING:
    from registry.fit import Fitter, Span


@dataclass(frozen=True)
class Estimate:
    """The answer for `budgets`. Where one of them is left open, the model has `span.given` bytes of memory, `context`
    positions and `threads`; `kv` is the cache to recommend. `plan` is None where it cannot run."""

    budgets: Budgets
    fitness: Fitness
    plan: Plan | None
    span: Span
    context: int
    threads: int
    processors: int
    kv: str


class Estimator:
    """Of one model. It takes its time with the first question, and with each new number of threads; then milliseconds.

    It belongs off the window's thread.
    """

    def __init__(self, make: Callable[[int | None], Fitter], alone: AbstractContextManager[object]) -> None:
        """`make` makes a fitter for a number of threads; `alone` is held meanwhile, since something may be measured."""
        self._fitter = lru_cache(make)
        self._alone = alone

    def estimate(self, budgets: Budgets) -> Estimate:
        """Raises as `registry.fitting.fitter_of` where the model cannot be opened, and `Cancelled`."""
        from app.models_page.suggesting import told
        from engine.cores import default_threads, processors

        with self._alone:
            fitter = self._fitter(budgets.threads)
            fit = fitter.fit(budgets)
            free = fit if budgets.context is None else fitter.fit(replace(budgets, context=None))
            exact = fit if budgets.kv == "f16" else fitter.fit(replace(budgets, kv="f16"))
            span = fitter.span()
        return Estimate(
            budgets=budgets,
            fitness=told(fit),
            plan=fit.plan,
            span=span,
            context=span.usual if free.plan is None else free.plan.context,
            threads=default_threads(),
            processors=processors(),
            kv=exact.budgets.kv,  # packed where nothing else keeps the model in memory
        )
