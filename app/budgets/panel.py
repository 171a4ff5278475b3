"""The budgets of a model on sliders, and beneath them how it would run, which changes as they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.budgets.budget_row import CacheRow, SliderRow
from app.budgets.estimate import Estimate, Estimator
from app.budgets.memory_bar import MemoryBar
from app.budgets.stops import context_stops, memory_stops
from app.look import Look, breakable, label
from app.models_page.fit_line import FitLine
from app.models_page.fitness import Fitness
from app.models_page.tasks import Tasks
from engine.cancel import Cancel
from engine.errors import BudgetError, ModelFileError, SettingsError, UnsupportedModelError
from engine.types import Budgets
from engine.units import human_bytes

SETTLED_MS = 250
"""How long a number of threads must stand: for each one the processor is measured."""
SLOW_MS = 250
"""After which it is said that an answer is being worked out."""
REASON_LINES = 5
REFUSALS = (BudgetError, ModelFileError, SettingsError, UnsupportedModelError)

Open = Callable[[Cancel], tuple[Estimator, Budgets | None]]
"""Makes the estimator of a model, and tells what was chosen for it before. It may block."""


class BudgetPanel(QWidget):
    """Nothing here waits: what is asked while an answer is on its way is asked when it has come, the newest alone, and
    an answer about another model is dropped."""

    changed = Signal()
    """A person chose something."""
    answered = Signal()
    """How it runs with `budgets` is known."""

    def __init__(self, tasks: Tasks, look: Look) -> None:
        super().__init__()
        self._tasks = tasks
        self._cancel = Cancel()
        self._estimator: Estimator | None = None
        self._asked: Budgets | None = None
        self.budgets = Budgets()
        self.estimate: Estimate | None = None
        self.memory = SliderRow(
            self.tr("Memory"),
            self.tr("Memory that the model may take. With less of it, more comes from disk, which is slower."),
            human_bytes,
            look,
        )
        self.context = SliderRow(
            self.tr("Context"),
            self.tr("How much of the conversation the model keeps in mind. A word is about one and a half tokens."),
            lambda tokens: self.tr("{n} tokens").format(n=f"{tokens:,}"),
            look,
        )
        self.cache = CacheRow(
            self.tr("Cache"),
            self.tr("How what was said is kept."),
            (
                ("f16", self.tr("Exact: two bytes a number.")),
                ("q8_0", self.tr("Packed: half the memory, and answers that are nearly the same.")),
            ),
        )
        self.threads = SliderRow(
            self.tr("Threads"), self.tr("How many cores of the processor compute."), lambda threads: f"{threads}", look
        )
        self.fit = FitLine(look)
        self.bar = MemoryBar(look)
        self.reason = label(level="small", tone="muted", wrap=True)
        # What will stand there has its room from the first, so that nothing jumps while a slider moves.
        policy = self.fit.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.fit.setSizePolicy(policy)
        self.reason.setAlignment(Qt.AlignmentFlag.AlignTop)
        below = QVBoxLayout()
        below.setSpacing(8)
        for part in (self.fit, self.bar, self.reason):
            below.addWidget(part)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        for row in (self.memory, self.context, self.cache, self.threads):
            column.addWidget(row)
        column.addLayout(below)
        self._settled = QTimer(self, interval=SETTLED_MS, singleShot=True)
        self._settled.timeout.connect(self._ask)
        self._slow = QTimer(self, interval=SLOW_MS, singleShot=True)
        self._slow.timeout.connect(lambda: self._say(self.tr("Working it out…")))
        self.memory.chosen.connect(lambda value: self._choose(replace(self.budgets, ram=value)))
        self.context.chosen.connect(lambda value: self._choose(replace(self.budgets, context=value)))
        self.cache.chosen.connect(self._on_cache)
        self.threads.chosen.connect(lambda value: self._choose(replace(self.budgets, threads=value)))
        self._enable(False)

    def open(self, opened: Open) -> None:
        """Show another model, as soon as it is opened."""
        self.clear()
        self.reason.ensurePolished()
        self.reason.setMinimumHeight(REASON_LINES * self.reason.fontMetrics().lineSpacing() + 2)
        self._slow.start()
        self._asked = Budgets()
        self._cancel = self._tasks.run(partial(_begin, opened), self._on_opened, self._on_refused, self._cancel)

    def clear(self) -> None:
        """Show no model; what is under way for the one that was shown is left."""
        self._cancel.set()
        self._cancel = Cancel()
        self._estimator = self.estimate = self._asked = None
        self.budgets = Budgets()
        for timer in (self._settled, self._slow):
            timer.stop()
        self._enable(False)
        self.fit.show_fitness(None)
        self.bar.set_plan(None)
        self.reason.clear()

    @property
    def runs(self) -> bool:
        """Whether the model is known to run with `budgets`."""
        return self.settled and self.estimate is not None and self.estimate.fitness.runs

    @property
    def settled(self) -> bool:
        """Whether `estimate` is the one for `budgets`."""
        return self.estimate is not None and self.estimate.budgets == self.budgets

    def apply_look(self, look: Look) -> None:
        for part in (self.memory, self.context, self.threads, self.fit, self.bar):
            part.apply_look(look)

    def _choose(self, budgets: Budgets) -> None:
        threads = budgets.threads != self.budgets.threads
        self.budgets = budgets
        self._show_choice()
        self.changed.emit()
        if threads:
            self._settled.start()
        elif not self._settled.isActive():
            self._ask()

    def _on_cache(self, kind: str | None) -> None:
        recommended = self.estimate.kv if self.estimate is not None else "f16"
        self._choose(replace(self.budgets, kv=kind or recommended))

    def _ask(self) -> None:
        estimator, budgets = self._estimator, self.budgets
        if estimator is None or self._asked is not None:
            return
        self._asked = budgets
        self._slow.start()
        self._tasks.run(lambda _: estimator.estimate(budgets), self._on_answer, self._on_refused, self._cancel)

    def _on_opened(self, made: tuple[Estimator, Estimate]) -> None:
        self._estimator, estimate = made
        self.budgets = estimate.budgets
        self._enable(True)
        self._on_answer(estimate)

    def _on_answer(self, estimate: Estimate) -> None:
        self._asked = None
        self._slow.stop()
        self.estimate = estimate
        span = estimate.span
        self.memory.set_stops(
            memory_stops(span.least, span.most, span.given), min(max(span.given, span.least), span.most)
        )
        self.context.set_stops(context_stops(span.longest, span.usual), estimate.context)
        self.threads.set_stops(tuple(range(1, estimate.processors + 1)), estimate.threads)
        self._show_choice()
        self._show_answer(estimate)
        if self.settled:
            self.answered.emit()
        elif not self._settled.isActive():
            self._ask()

    def _on_refused(self, sentence: str, error: BaseException) -> None:
        """A model that is refused cannot run; of one that cannot be reached nothing is known."""
        self._asked = None
        self._slow.stop()
        self.fit.show_fitness(Fitness("cannot" if isinstance(error, REFUSALS) else "unknown", sentence))
        self._say(sentence)
        self.bar.set_plan(None)
        self.answered.emit()

    def _show_choice(self) -> None:
        budgets = self.budgets
        self.memory.show_value(budgets.ram)
        self.context.show_value(budgets.context)
        self.threads.show_value(budgets.threads)
        self.cache.show_value(budgets.kv, self.estimate.kv if self.estimate is not None else budgets.kv)

    def _show_answer(self, estimate: Estimate) -> None:
        fitness, plan = estimate.fitness, estimate.plan
        self.fit.show_fitness(fitness)
        self.bar.set_plan(plan)
        if plan is None or fitness.why:
            self._say(fitness.why)
            return
        needed = plan.weights + plan.experts + plan.arena + plan.kv + plan.activations + plan.tables + plan.vision
        form = self.tr("It takes {taken} of the {granted}.")
        self._say(form.format(taken=human_bytes(needed), granted=human_bytes(plan.ram)))

    def _say(self, sentence: str) -> None:
        self.reason.setText(breakable(sentence))
        self.reason.setAccessibleName(sentence)

    def _enable(self, enabled: bool) -> None:
        for row in (self.memory, self.context, self.cache, self.threads):
            row.setEnabled(enabled)


def _begin(opened: Open, cancel: Cancel) -> tuple[Estimator, Estimate]:
    estimator, chosen = opened(cancel)
    return estimator, estimator.estimate(chosen or Budgets())
