"""The seam between the window and whatever answers in it: a local engine today, a remote one later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from app.requests import Report
from engine.cancel import Cancel
from engine.types import Budgets, Event, Message, ModelInfo, Plan, Settings


class ChatEngine(Protocol):
    """A loaded model that answers. It is made, used and closed in one thread, the bridge's. `engine.Engine` is one."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def context_length(self) -> int:
        """Tokens that prompt and reply may have together."""
        ...

    @property
    def plan(self) -> Plan:
        """Where its weights are, what memory it takes, and how fast that makes it."""
        ...

    def chat(
        self, messages: Sequence[Message], settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        """Answer the last message. `Finished` comes last, also after `cancel`. Raises MillstreamError."""
        ...

    def close(self) -> None: ...


class EngineLoader(Protocol):
    """Makes the engine for a model's name, fetching the model first where that is needed."""

    def __call__(self, model: str, report: Report, cancel: Cancel, budgets: Budgets | None = None) -> ChatEngine:
        """`budgets` are what it may use; None leaves them to the loader. Raises Cancelled after `cancel`, and
        MillstreamError."""
        ...
