"""Harmony, the form of GPT-OSS's replies: messages, each with a header that names its channel and its recipient.

Source: OpenAI, "OpenAI harmony response format" (https://cookbook.openai.com/articles/openai-harmony). A reply is
`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>`; a call of a tool has
` to=functions.NAME` before or after the channel, and ends with `<|call|>`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from engine.text.calls import code_call, json_call
from engine.text.markers import undecided
from engine.types import Reasoning, Text, ToolCall

MARKS: Final = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>")

_MARK: Final = re.compile("|".join(map(re.escape, MARKS)))
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
_TO: Final = "to="
_LONGEST_HEADER: Final = 512

Kind = Literal["text", "reasoning", "call"]
Piece = Text | Reasoning | ToolCall


class HarmonyReader:
    """Reads one reply. A second message of a kind is set off from the one before by an empty line.

    What is no message at all, because the model left the form, is text.
    """

    def __init__(self, prompt_end: str) -> None:
        """`prompt_end` may be anywhere in a message: in its header, as after `<|start|>assistant`, or in its body."""
        self._held = ""
        self._header = ""
        self._in_body = False
        self._started = False
        """Whether the header began with `<|start|>`, so that a role comes first in it."""
        self._kind: Kind = "text"
        self._recipient = ""
        self._call = ""
        self._spoken: set[Kind] = set()
        self._set_off = False
        _, start, message = prompt_end.rpartition("<|start|>")
        if start:
            self._started = True
            self.push(message)
        if not self._in_body and "<|channel|>" not in self._header:
            self._header, self._started = "", False  # at most a role, which says nothing
        self._spoken.clear()

    @property
    def in_reasoning(self) -> bool:
        return self._kind == "reasoning"

    def push(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        text = self._held + text
        done = 0
        for mark in _MARK.finditer(text):
            self._take(pieces, text[done : mark.start()])
            self._mark(pieces, mark[0])
            done = mark.end()
        text = text[done:]
        safe = undecided(text, MARKS)
        self._take(pieces, text[:safe])
        self._held = text[safe:]
        return pieces

    def flush(self) -> list[Piece]:
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        self._take(pieces, held)
        self._close(pieces)
        return pieces

    def _take(self, pieces: list[Piece], text: str) -> None:
        if not text:
            return
        if self._in_body:
            self._say(pieces, text)
            return
        self._header += text
        rest = self._header.lstrip()
        no_header = not self._started and rest and not rest.startswith(("<|", _TO[: len(rest)]))
        if no_header or len(self._header) > _LONGEST_HEADER:
            header, self._header = self._header, ""
            self._open("text")
            self._say(pieces, header)

    def _mark(self, pieces: list[Piece], mark: str) -> None:
        if not self._in_body and mark in ("<|channel|>", "<|constrain|>"):
            self._header += mark
        elif not self._in_body and mark == "<|message|>":
            self._open(self._kind_of_header())
        elif mark not in ("<|message|>", "<|constrain|>"):
            self._close(pieces)
            self._header = mark if mark == "<|channel|>" else ""
            self._started = mark == "<|start|>"

    def _kind_of_header(self) -> Kind:
        recipient = _RECIPIENT.search(self._header)
        if recipient and recipient[1] not in ("assistant", "user", "all"):
            self._recipient = recipient[1].removeprefix("functions.")
            return "call"
        channel = _CHANNEL.search(self._header)
        return "reasoning" if channel and channel[1] == "analysis" else "text"

    def _open(self, kind: Kind) -> None:
        self._in_body, self._kind, self._header = True, kind, ""
        self._set_off = kind in self._spoken

    def _say(self, pieces: list[Piece], text: str) -> None:
        if self._kind == "call":
            self._call += text
            return
        if self._set_off:
            text = "\n\n" + text
        self._set_off = False
        self._spoken.add(self._kind)
        pieces.append(Reasoning(text) if self._kind == "reasoning" else Text(text))

    def _close(self, pieces: list[Piece]) -> None:
        if self._in_body and self._kind == "call":
            body, self._call = self._call, ""
            try:
                # The built-in interpreter is sent code as it is.
                read = code_call if self._recipient == "python" else json_call
                pieces.append(read(self._recipient, body))
            except ValueError:
                self._open("text")
                if body:
                    self._say(pieces, body)
        elif not self._in_body and not self._started and self._header.strip() and "<|channel|>" not in self._header:
            header, self._header = self._header, ""
            self._open("text")
            self._say(pieces, header)
        self._in_body = False
