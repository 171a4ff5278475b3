"""A conversation as the window holds it: exchanges, and the messages that they amount to. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.attachment import Attachment
from engine.types import PLACE, Finished, Message

ReplyState = Literal["waiting", "streaming", "finished", "stopped", "failed"]


@dataclass
class Exchange:
    """What was asked, and as much of the reply as there is."""

    request_id: int
    prompt: str
    pictures: tuple[Attachment, ...] = ()
    reply: str = ""
    reasoning: str = ""
    state: ReplyState = "waiting"
    finished: Finished | None = None
    error: str = ""

    @property
    def open(self) -> bool:
        return self.state in ("waiting", "streaming")

    @property
    def question(self) -> Message:
        """The pictures stand before the text: a place for one in it came there by pasting, and means none of them."""
        images = tuple(picture.image for picture in self.pictures)
        return Message("user", self.prompt.replace(PLACE, "") if images else self.prompt, images=images)

    def add_text(self, text: str) -> None:
        self.reply += text
        self.state = "streaming"

    def add_reasoning(self, text: str) -> None:
        self.reasoning += text

    def finish(self, finished: Finished) -> None:
        """The engine says that the reply is over."""
        self.finished = finished
        self.state = "stopped" if finished.reason == "cancelled" else "finished"

    def fail(self, sentence: str) -> None:
        self.error = sentence
        self.state = "failed"


@dataclass
class Session:
    """One conversation. Request ids go on rising over `clear`, so that a late event finds no exchange."""

    exchanges: list[Exchange] = field(default_factory=list)
    last_request_id: int = 0

    @property
    def has_pictures(self) -> bool:
        """Whether the model is told of any, in the exchanges so far."""
        return any(message.images for message in self.messages())

    def ask(self, prompt: str, pictures: tuple[Attachment, ...] = ()) -> Exchange:
        """Begin an exchange. The one before must be closed."""
        assert not (self.exchanges and self.exchanges[-1].open), "one reply at a time"
        self.last_request_id += 1
        self.exchanges.append(Exchange(self.last_request_id, prompt, pictures))
        return self.exchanges[-1]

    def withdraw(self) -> Exchange:
        """Take the last exchange back, to ask it again."""
        return self.exchanges.pop()

    def clear(self) -> None:
        self.exchanges.clear()

    def open_exchange(self, request_id: int) -> Exchange | None:
        """The exchange that waits for events of this request, if any."""
        last = self.exchanges[-1] if self.exchanges else None
        return last if last is not None and last.request_id == request_id and last.open else None

    def messages(self) -> tuple[Message, ...]:
        """What the model is told.

        A question that got no reply at all (stopped early, or failed) is left out, unless it is the one asked now:
        many chat templates refuse two turns of the same role in a row.
        """
        told: list[Message] = []
        for exchange in self.exchanges:
            if exchange.reply.strip():
                told += [exchange.question, Message("assistant", exchange.reply)]
            elif exchange.open:
                told.append(exchange.question)
        return tuple(told)
