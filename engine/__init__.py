"""Millstream's engine: a model file in, a conversation out.

    from engine import Budgets, Engine, Message, Settings, Text

    with Engine.load("model.gguf", Budgets(context=4096)) as engine:
        messages = [Message("user", "What is a water mill?")]
        for event in engine.chat(messages, Settings(max_tokens=200)):
            if isinstance(event, Text):
                print(event.text, end="", flush=True)

A reply is a stream of events: `PrefillProgress` while the prompt is read, `Text` (and `Reasoning`) pieces, a `ToolCall`
for each of the `tools` that the model asks for, and one `Finished` with the reason, the token counts and the timings.
`Cancel` stops a reply or a load from another thread. Whatever goes wrong in a way that a person can mend is a
`MillstreamError` whose message is a sentence for that person.

A message takes pictures, `Message("user", "What is this?", images=(Image(Path("mill.jpg").read_bytes()),))`, where the
model has a vision tower: the mmproj file beside it.

An engine holds one conversation and runs one reply at a time, in the thread that iterates over it. The next `chat` of
the same conversation computes only what was added, because the longest prefix that both prompts share stays cached.
`describe` tells what a file holds without loading it, and `plan` where its weights would be and how fast it would run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cancel import Cancel, Cancelled
from engine.errors import (
    BudgetError,
    ContextError,
    DownloadError,
    ImageError,
    MillstreamError,
    ModelFileError,
    NumericsError,
    SettingsError,
    StorageError,
    UnsupportedModelError,
)
from engine.types import (
    Budgets,
    Effort,
    Event,
    Fingerprint,
    Finished,
    FinishReason,
    Image,
    LoadProgress,
    MemoryUse,
    Message,
    ModelInfo,
    Placed,
    Plan,
    PrefillProgress,
    Reasoning,
    Role,
    Settings,
    Text,
    Timings,
    Tool,
    ToolCall,
    Usage,
)
from engine.units import human_bytes

if TYPE_CHECKING:
    from engine.decode.measure import Measurement
    from engine.engine import Engine
    from engine.info import describe
    from engine.planning import plan

__all__ = [
    "BudgetError",
    "Budgets",
    "Cancel",
    "Cancelled",
    "ContextError",
    "DownloadError",
    "Effort",
    "Engine",
    "Event",
    "Fingerprint",
    "FinishReason",
    "Finished",
    "Image",
    "ImageError",
    "LoadProgress",
    "Measurement",
    "MemoryUse",
    "Message",
    "MillstreamError",
    "ModelFileError",
    "ModelInfo",
    "NumericsError",
    "Placed",
    "Plan",
    "PrefillProgress",
    "Reasoning",
    "Role",
    "Settings",
    "SettingsError",
    "StorageError",
    "Text",
    "Timings",
    "Tool",
    "ToolCall",
    "UnsupportedModelError",
    "Usage",
    "describe",
    "human_bytes",
    "plan",
]


def __getattr__(name: str) -> object:
    """Import what needs numpy on first use, so that a window or `--help` starts without it."""
    if name == "Engine":
        from engine.engine import Engine

        return Engine
    if name == "Measurement":
        from engine.decode.measure import Measurement

        return Measurement
    if name == "describe":
        from engine.info import describe

        return describe
    if name == "plan":
        from engine.planning import plan

        return plan
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
