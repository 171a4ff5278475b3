"""From a path and budgets to everything that an engine is made of."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from engine import heap, models
from engine.cancel import Cancel, patiently
from engine.checks import check_budgets
from engine.errors import naming
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.info import model_info
from engine.kernels.ops import Ops
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.memory.streaming import Streaming
from engine.models.model import Model
from engine.models.rotary import table_bytes
from engine.planning import make_plan, this_machine
from engine.text import Tokenizer
from engine.types import Budgets, LoadProgress, ModelInfo, Plan
from engine.vision.eyes import Eyes, find_eyes


@dataclass(frozen=True)
class Parts:
    """A model in memory, as far as its plan has it there, and what it runs on. Without `streaming` all of it is."""

    index: TensorIndex
    info: ModelInfo
    tokenizer: Tokenizer
    model: Model
    ops: Ops
    budgets: Budgets
    plan: Plan
    meter: Meter
    eyes: Eyes | None
    streaming: Streaming | None
    bytes_read: int

    def close(self) -> None:
        """Let go of threads and files."""
        if self.streaming is not None:
            self.streaming.close()
        self.ops.close()


def load_parts(
    path: Path,
    budgets: Budgets,
    *,
    mmproj: Path | None,
    measurements: Path | None,
    planned: Callable[[Plan], None] | None,
    progress: Callable[[LoadProgress], None] | None,
    cancel: Cancel | None,
    ops: Ops | None,
) -> Parts:
    """As `Engine.load`. Whatever goes wrong, nothing stays open or half loaded."""
    check_budgets(budgets)
    index = patiently(lambda: open_index(path), cancel)
    files = path.name, *(part.name for part in index.paths)
    with naming(*files):
        info = patiently(lambda: model_info(index), cancel)
        tokenizer = Tokenizer.from_metadata(index.metadata)
    eyes = patiently(lambda: find_eyes(index, mmproj), cancel)
    with naming(*files):
        machine = this_machine(index, info, budgets, measurements, loading=True, cancel=cancel)
        plan, placement = make_plan(index, info, budgets, eyes, machine, cancel)
        if planned is not None:
            planned(plan)
        meter, streaming = Meter(plan.ram), None
        ops = ops or _native(budgets)
        try:
            if plan.streams:
                streaming = Streaming(placement, meter, cancel)
            store = WeightStore(
                index,
                ops,
                meter,
                placement=placement,
                stream=None if streaming is None else streaming.stream,
                keep_cached=budgets.ram is None and streaming is None,
                progress=progress,
                cancel=cancel,
            )
            with closing(store):
                model = models.build(index.metadata, store, context=plan.context)
                store.require_all_used()
            if streaming is not None:
                streaming.foresee(store)
            meter.set("tables", table_bytes(model.tables.values()))
        except BaseException:
            if streaming is not None:
                streaming.close()
            ops.close()
            raise
    heap.give_back()
    return Parts(index, info, tokenizer, model, ops, budgets, plan, meter, eyes, streaming, store.bytes_read)


def _native(budgets: Budgets) -> Ops:
    from engine.kernels.native import NativeOps

    return NativeOps(threads=budgets.threads)
