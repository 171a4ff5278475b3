"""One reply's stream of text → events: reasoning, text, calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from engine.text.callforms import ParameterTypes
from engine.text.channels import ChannelForm, ChannelReader
from engine.text.harmony import Piece
from engine.text.tools import ToolForm, ToolReader
from engine.types import Text

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

HEADER_TOKENS: Final = 64
"""So many tokens at the end of a prompt hold all of the last message's header."""


@dataclass(frozen=True)
class ReplyForm:
    """How a model marks its reasoning and, where it was told of tools, its calls. By default everything is text.

    `types` are those of the tools' parameters (`engine.text.tools.parameter_types`).
    """

    channels: ChannelForm | None = None
    tools: ToolForm | None = None
    types: ParameterTypes = field(default_factory=dict)

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of special tokens that must be seen to read a reply."""
        return tuple(marker for form in (self.channels, self.tools) if form is not None for marker in form.markers)

    def reader(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> ReplyReader:
        """For the reply to this prompt."""
        channels = None
        if self.channels is not None:
            channels = self.channels.reader(tokenizer.decode(prompt[-HEADER_TOKENS:], skip_special=False))
        return ReplyReader(channels, None if self.tools is None else ToolReader(self.tools, self.types))


class ReplyReader:
    """Splits a reply by its channels where there are any, and looks for calls in what is said to the person.

    Without either everything is text, piece by piece as it comes.
    """

    def __init__(self, channels: ChannelReader | None, tools: ToolReader | None = None) -> None:
        self._channels = channels
        self._tools = tools

    @property
    def in_reasoning(self) -> bool:
        """Whether what came last belongs to the reasoning, and nothing has closed it."""
        return self._channels is not None and self._channels.in_reasoning

    def push(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._with_calls([Text(text)] if self._channels is None else self._channels.push(text))

    def flush(self) -> list[Piece]:
        """What was held back, now that no more text comes."""
        pieces = self._with_calls([] if self._channels is None else self._channels.flush())
        return pieces if self._tools is None else [*pieces, *self._tools.flush()]

    def _with_calls(self, pieces: list[Piece]) -> list[Piece]:
        if self._tools is None:
            return pieces
        read: list[Piece] = []
        for piece in pieces:
            read += self._tools.push(piece.text) if isinstance(piece, Text) else [piece]
        return read
