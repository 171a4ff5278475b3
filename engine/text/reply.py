"""One reply's stream of text → events: reasoning, text, calls of tools."""

from __future__ import annotations

from engine.text.channels import ChannelReader
from engine.text.harmony import Piece
from engine.text.tools import ToolReader
from engine.types import Text


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
