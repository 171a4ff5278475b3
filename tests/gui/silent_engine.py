"""An engine that says nothing until it is stopped: for windows whose engine is in the middle of its work."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.requests import Report
from engine.cancel import Cancel
from engine.types import Budgets, Event, Finished, Message, ModelInfo, Settings, Timings, Usage
from tests.plans import RESIDENT, STREAMED


class SilentEngine:
    info = ModelInfo(
        path="/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        name="SmolLM2 135M Instruct",
        architecture="llama",
        parameters=134_515_008,
        file_bytes=98_362_432,
        context_length=8192,
        layers=30,
        hidden_size=576,
        vocabulary=49152,
        encodings={"Q4_1": 66_000_000, "Q8_0": 30_000_000, "F32": 140_000},
    )
    plan = RESIDENT
    context_length = 8192

    def chat(
        self, messages: Sequence[Message], settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        _wait(cancel or Cancel())
        yield Finished("cancelled", Usage(0, 0, 0), Timings(0.0, 0.0, 0.0, 0.0, 0.0))

    def close(self) -> None:
        """It holds nothing."""


class SeeingEngine(SilentEngine):
    info = replace(SilentEngine.info, vision="silent")


class StreamingEngine(SilentEngine):
    info = replace(SilentEngine.info, path="/models/Qwen3-235B-A22B-Instruct-Q4_K_M.gguf", encodings={"Q4_K": 1})
    plan = STREAMED


def load_silent(model: str, report: Report, cancel: Cancel, budgets: Budgets | None = None) -> SilentEngine:
    """At once, except for the model "wait", which never arrives. "seeing" takes pictures, "large" is on disk."""
    if model == "wait":
        _wait(cancel)
        cancel.check()
    return {"seeing": SeeingEngine, "large": StreamingEngine}.get(model, SilentEngine)()


def _wait(cancel: Cancel) -> None:
    while not cancel.is_set():
        threading.Event().wait(0.01)
