"""Whether a model runs on a machine, how, and how fast: the engine's own plan, told in a label.

    found = fit(index, eyes, Budgets(), machine)
    found.words     # "streams from disk, about 3.2 tokens/s"
    found.plan      # what `engine.plan` will say

The bytes are those that loading takes, since they are worked out by what loads. `registry.fitting` does the same for a
model by where it lies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final

from engine.checks import check_budgets
from engine.errors import BudgetError, ModelFileError, SettingsError, UnsupportedModelError, naming
from engine.formats.index import TensorIndex
from engine.info import model_info, positions
from engine.memory.needs import Anatomy, Needs
from engine.planning import SHORTEST, Machine, make_plan, room, stays
from engine.types import Budgets, Plan
from engine.units import human_bytes
from engine.vision.eyes import Eyes
from registry.probe.tree import Gpu

PROMPT: Final = 512
"""Tokens of the prompt after which the first token is waited for."""
SHORTER: Final = 2048
"""Positions down to which a shorter context is recommended, where nobody asked for one."""
REFUSALS: Final = (BudgetError, ModelFileError, SettingsError, UnsupportedModelError)
"""What says that a model cannot run here."""


class Label(Enum):
    """How a model runs. `shape` is a sign that tells it without colour; `role` is "ok", "warn" or "bad" for a theme."""

    GPU = ("fits the GPU", "●", "ok")
    MEMORY = ("fits memory", "◉", "ok")
    DISK = ("streams from disk", "◐", "warn")
    CANNOT = ("cannot run here", "✕", "bad")

    def __init__(self, words: str, shape: str, role: str) -> None:
        self.words = words
        self.shape = shape
        self.role = role


@dataclass(frozen=True)
class Fit:
    """`plan` is that of the budgets that were asked for, `None` where the model cannot run. `why` is a sentence on what
    stands against something better; "" where nothing does.

    `tok_s` is the speed of decoding at short context and `first_token_s` how long the first token is waited for after a
    prompt of `PROMPT` tokens, or of the context where that is shorter; `None` where nothing was measured. `budgets` are
    the ones to recommend: those that were asked for, with what was left open chosen.
    """

    label: Label
    plan: Plan | None
    why: str
    budgets: Budgets
    tok_s: float | None = None
    first_token_s: float | None = None

    @property
    def runs(self) -> bool:
        return self.label is not Label.CANNOT

    @property
    def words(self) -> str:
        """The label, with what belongs to it."""
        if self.label is Label.CANNOT:
            return f"{self.label.words}: {self.why}"
        if self.label is Label.DISK and self.tok_s is not None:
            return f"{self.label.words}, about {speed(self.tok_s)}"
        return self.label.words


def speed(tok_s: float) -> str:
    """As exact as a prediction is."""
    if tok_s < 0.1:
        return f"one token in {1 / tok_s:.0f} s"
    return f"{tok_s:.2g} tokens/s" if tok_s < 9.95 else f"{tok_s:.0f} tokens/s"


@dataclass(frozen=True)
class Span:
    """Between what the budgets of a model can be on a machine.

    With `least` bytes of memory it runs where nothing else is asked for; `most` are there, of which it has `given`
    where none are named. Its context is then `usual`, with memory enough, and may be up to `longest`, which is `None`
    where its file does not tell.
    """

    least: int
    most: int
    given: int
    usual: int
    longest: int | None


class Fitter:
    """Answers for one model on one machine under whatever budgets, at once after the first time. One thread at a time.

    The machine is as it was when it was given, and is measured at most once; `unloading` bytes of memory are given back
    before the model is loaded, those of one that is loaded now. `gpus` are the cards of a probe.
    """

    def __init__(
        self,
        index: TensorIndex,
        eyes: Eyes | None,
        machine: Machine,
        *,
        unloading: int = 0,
        gpus: Sequence[Gpu] = (),
    ) -> None:
        """Raises ModelFileError and UnsupportedModelError for a model that the engine cannot run anywhere."""
        self._index, self._eyes = index, eyes
        self._cards = [gpu for gpu in gpus if gpu.usable]
        drive, speeds = lru_cache(machine.drive), lru_cache(machine.speeds)
        self._machine = replace(
            machine,
            free=min(machine.free + unloading, machine.total),
            drive=drive,
            speeds=lambda encodings: speeds(frozenset(encodings)),
            kept=lru_cache(machine.kept),
            measured=lru_cache(machine.measured),
        )
        with naming(*(path.name for path in index.paths)):
            self._info = model_info(index)
            self._anatomy = Anatomy(index, eyes)

    def fit(self, budgets: Budgets) -> Fit:
        """The label says what is too little, or too much. Raises SettingsError for what no budget can be."""
        check_budgets(budgets)
        granted = budgets.vram
        try:
            if self._cards:
                budgets = replace(budgets, vram=None)
            on_card = self._on_card(budgets, granted)
            try:
                plan = self._plan(budgets)
            except BudgetError:
                if not on_card:
                    raise
                plan = None
        except REFUSALS as error:
            return Fit(Label.CANNOT, None, str(error), self._recommended(budgets) or budgets)
        if on_card:
            chosen = replace(budgets, vram=granted, context=positions(budgets, self._info))
            return Fit(Label.GPU, plan, "", chosen)
        assert plan is not None
        told = plan.tok_s, _first_token(plan)
        if not plan.streams:
            return Fit(Label.MEMORY, plan, "", replace(budgets, context=plan.context), *told)
        better = self._recommended(budgets)
        whole = plan.weights + sum(placed.nbytes for placed in plan.placed if placed.tier == "disk")
        rest = plan.kv + plan.activations + plan.tables + plan.vision
        why = (
            f"Its weights take {human_bytes(whole)} and all else {human_bytes(rest)}, but it may have "
            f"{human_bytes(plan.ram)} of memory."
        )
        if better is not None:
            assert better.context is not None
            packed = " and the q8_0 cache" if better.kv != budgets.kv else ""
            why += f" With a context of {better.context:,} tokens{packed} it fits memory."
        return Fit(Label.DISK, plan, why, better or replace(budgets, context=plan.context), *told)

    def span(self) -> Span:
        """What there is to choose from."""
        nothing, machine = Budgets(), self._machine
        usual = positions(nothing, self._info)
        least = self._needs(nothing, usual).least(min(usual, SHORTEST))
        most = max(machine.free - machine.pending, 0)
        return Span(least, most, room(nothing, machine), usual, self._info.context_length or None)

    def _plan(self, budgets: Budgets) -> Plan:
        with naming(*(path.name for path in self._index.paths)):
            return make_plan(self._index, self._info, budgets, self._eyes, self._machine, anatomy=self._anatomy)[0]

    def _on_card(self, budgets: Budgets, granted: int | None) -> bool:
        """Whether one usable card takes all of the model. What two cards have is not added up."""
        free = max((card.free or card.total or 0 for card in self._cards), default=0)
        free = free if granted is None else min(free, granted)
        if not free:
            return False
        context = positions(budgets, self._info)
        needs = self._needs(budgets, context)
        return needs.resident(context, needs.chunks[0]) <= free

    def _needs(self, budgets: Budgets, context: int) -> Needs:
        """Of a plan for such a context: no chunk is longer than it."""
        budgets = replace(budgets, chunk=min(budgets.chunk, context))
        return Needs(self._index, budgets, self._eyes, self._machine.threads, anatomy=self._anatomy)

    def _recommended(self, budgets: Budgets) -> Budgets | None:
        """What the model fits memory with, at the least that has to be given up: first the cache's precision, then half
        of the context, and so on. Nothing that was asked for is given up, but a cache's precision is no such thing."""
        asked = replace(budgets, vram=None)
        try:
            longest = positions(asked, self._info)
        except SettingsError:
            asked = replace(asked, context=None)
            longest = positions(asked, self._info)
        contexts = [longest]
        while asked.context is None and contexts[-1] // 2 >= SHORTER:
            contexts.append(contexts[-1] // 2)
        for context in contexts:
            for kv in dict.fromkeys((asked.kv, "q8_0")):
                chosen = replace(asked, context=context, kv=kv)
                with contextlib.suppress(*REFUSALS):  # not every model's cache can be packed
                    if stays(self._needs(chosen, context), context, room(chosen, self._machine)):
                        return chosen
        return None


def fit(
    index: TensorIndex,
    eyes: Eyes | None,
    budgets: Budgets,
    machine: Machine,
    *,
    unloading: int = 0,
    gpus: Sequence[Gpu] = (),
) -> Fit:
    """As `Fitter`, for one answer."""
    return answer(lambda: Fitter(index, eyes, machine, unloading=unloading, gpus=gpus), budgets)


def answer(make: Callable[[], Fitter], budgets: Budgets) -> Fit:
    """That of a fitter. A model that refuses to have one cannot run."""
    try:
        fitter = make()
    except REFUSALS as error:
        return Fit(Label.CANNOT, None, str(error), budgets)
    return fitter.fit(budgets)


def _first_token(plan: Plan) -> float | None:
    return min(PROMPT, plan.context) / plan.prefill_tok_s if plan.prefill_tok_s else None
