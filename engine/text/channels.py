"""A reply's stream of text → reasoning and what is said to the person, by the markers that the model writes.

Forms, with their sources:
`<think>…</think>`: the chat templates of Qwen 3, DeepSeek R1 and SmolLM3; `[THINK]…[/THINK]`: Mistral's of Magistral;
`<|channel>thought\\n…<channel|>`: Gemma 4's chat template; harmony: OpenAI, "OpenAI harmony response format"
(https://cookbook.openai.com/articles/openai-harmony).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from engine.text.harmony import MARKS, HarmonyReader, Piece
from engine.text.markers import undecided
from engine.types import Reasoning, Text


class ChannelReader(Protocol):
    """Reads one reply. However it is cut into pieces, the texts of the events, joined by kind, are the same.

    `in_reasoning` says, after `flush` too, that what came last belongs to the reasoning and nothing has closed it.
    """

    @property
    def in_reasoning(self) -> bool: ...

    def push(self, text: str) -> list[Piece]: ...

    def flush(self) -> list[Piece]:
        """What was held back, now that no more text comes."""
        ...


class ChannelForm(Protocol):
    """How a family of models marks its reasoning. `markers` are texts of tokens that must be seen to read a reply."""

    @property
    def markers(self) -> tuple[str, ...]: ...

    def reader(self, prompt_end: str) -> ChannelReader:
        """For a reply after a prompt whose last header, special tokens included, is at the end of `prompt_end`."""
        ...


@dataclass(frozen=True)
class Tags:
    """Reasoning between `open` and `close`, either of which may already stand at the end of the prompt.

    Blanks and line ends around the reasoning, which templates write, are left out. `open` counts at the start of a
    reply only, so that a model can write about it, unless `anywhere` is set, where ordinary text cannot contain it.
    """

    open: str
    close: str
    markers: tuple[str, ...]
    anywhere: bool = False

    def reader(self, prompt_end: str) -> TagReader:
        return TagReader(self, inside=prompt_end.rstrip().endswith(self.open))


@dataclass(frozen=True)
class Harmony:
    """Messages with a channel each: analysis is reasoning, all others are said to the person, or call a tool."""

    markers: tuple[str, ...] = MARKS

    def reader(self, prompt_end: str) -> HarmonyReader:
        return HarmonyReader(prompt_end)


_FORMS: Final[tuple[tuple[tuple[str, ...], ChannelForm], ...]] = (
    (("<|start|>", "<|channel|>", "<|message|>"), Harmony()),
    (("<|channel>", "<channel|>"), Tags("<|channel>thought", "<channel|>", ("<|channel>", "<channel|>"), True)),
    (("[THINK]", "[/THINK]"), Tags("[THINK]", "[/THINK]", ("[THINK]", "[/THINK]"))),
    (("<think>", "</think>"), Tags("<think>", "</think>", ("<think>", "</think>"))),
)


def channel_form(template: str, tokens: Container[str]) -> ChannelForm | None:
    """The form whose markers the chat template or the vocabulary has, if there is one."""
    for markers, form in _FORMS:
        if all(marker in template or marker in tokens for marker in markers):
            return form
    return None


class TagReader:
    """Reads a reply whose reasoning is marked by `Tags`."""

    def __init__(self, tags: Tags, *, inside: bool) -> None:
        """`inside`: the prompt has opened the reasoning."""
        self._tags = tags
        self._state: Literal["start", "reasoning", "text"] = "reasoning" if inside else "start"
        self._held = ""
        self._trim = inside

    @property
    def in_reasoning(self) -> bool:
        return self._state == "reasoning"

    def push(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        step = {"start": self._start, "reasoning": self._reason, "text": self._speak}
        while step[self._state](pieces):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        if self._state == "reasoning":
            self._emit(pieces, held.rstrip())
        else:
            self._state = "text"
            self._emit(pieces, held)
        return pieces

    def _start(self, pieces: list[Piece]) -> bool:
        """→ Whether there is more to do, in another state."""
        rest = self._held.lstrip()
        if rest.startswith(self._tags.open):
            self._enter("reasoning", rest[len(self._tags.open) :])
        elif self._tags.open.startswith(rest):
            return False
        else:
            self._state = "text"
        return True

    def _reason(self, pieces: list[Piece]) -> bool:
        before, close, after = self._held.partition(self._tags.close)
        if close:
            self._emit(pieces, before.rstrip())
            self._enter("text", after)
            return True
        safe = len(self._held[: undecided(self._held, [self._tags.close])].rstrip())
        self._emit(pieces, self._held[:safe])
        self._held = self._held[safe:]
        return False

    def _speak(self, pieces: list[Piece]) -> bool:
        markers = [self._tags.open] if self._tags.anywhere else []
        if markers and (at := self._held.find(self._tags.open)) >= 0:
            self._emit(pieces, self._held[:at])
            self._enter("reasoning", self._held[at + len(self._tags.open) :])
            return True
        safe = undecided(self._held, markers)
        self._emit(pieces, self._held[:safe])
        self._held = self._held[safe:]
        return False

    def _enter(self, state: Literal["reasoning", "text"], held: str) -> None:
        self._state, self._held, self._trim = state, held, True

    def _emit(self, pieces: list[Piece], text: str) -> None:
        if self._trim:
            text = text.lstrip()
        if text:
            self._trim = False
            pieces.append(Reasoning(text) if self._state == "reasoning" else Text(text))
