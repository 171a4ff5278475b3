"""What crosses between the window and the engine's thread: requests one way, notices the other. Plain data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.types import Budgets, Event, Message, ModelInfo, Plan, Settings

WayOut = Literal["retry", "new chat", "open again"]
"""What leads on from a reply that failed: the same question once more; a new chat, where it would fail again in this
one; or the model opened again, where its file did not give what it should."""


@dataclass(frozen=True)
class LoadModel:
    """Load a model in place of the present one. `model` is a path, "starter", or a name in the library. `budgets` are
    what it may use; None leaves them to the loader."""

    model: str
    budgets: Budgets | None = None


@dataclass(frozen=True)
class Ask:
    """Answer the last of `messages`. Every notice about it carries its `request_id`."""

    request_id: int
    messages: tuple[Message, ...]
    settings: Settings


@dataclass(frozen=True)
class Unload:
    """Let go of the model and its memory."""


Request = LoadModel | Ask | Unload


@dataclass(frozen=True)
class Fetching:
    """The model is on its way to the library: `done` of `total` bytes of that work; `what` names the step."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class Loading:
    """The model is being put into memory; `what` names the step; `total` is 0 where there is nothing to measure. `plan`
    says how it will run, once that is known."""

    what: str
    done: int
    total: int
    plan: Plan | None = None


@dataclass(frozen=True)
class Loaded:
    info: ModelInfo
    context_length: int
    plan: Plan
    machine_bytes: int
    """The memory that this machine, or the container around the program, has."""
    free_bytes: int
    """What of it is still free, with the model loaded."""


@dataclass(frozen=True)
class LoadCancelled:
    pass


@dataclass(frozen=True)
class LoadFailed:
    """`sentence` says what is wrong and what to do."""

    sentence: str


@dataclass(frozen=True)
class Unloaded:
    pass


@dataclass(frozen=True)
class Answer:
    """One event of the reply to a request."""

    request_id: int
    event: Event


@dataclass(frozen=True)
class AnswerFailed:
    """The reply ended in an error."""

    request_id: int
    sentence: str
    way_out: WayOut = "retry"


Notice = Fetching | Loading | Loaded | LoadCancelled | LoadFailed | Unloaded | Answer | AnswerFailed
Report = Callable[[Fetching | Loading], None]
