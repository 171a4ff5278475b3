"""What the model is told of a chat: the chosen path, as the engine's messages."""

from __future__ import annotations

from collections.abc import Sequence

from app.chats.pictures import Pictures
from app.chats.records import Turn
from engine.types import PLACE, Image, Message


def told(turns: Sequence[Turn], pictures: Pictures, system: str = "") -> tuple[Message, ...]:
    """`turns` as `Turns.path` gives them, with the empty reply of `begin` or `answer` at their end. Raises ChatsError.

    A question that got no reply at all (stopped early, or failed) is left out, unless it is the one asked now: many
    chat templates refuse two turns of the same role in a row. A picture that several messages show is read once.
    """
    read: dict[str, Image] = {}
    messages = [Message("system", system)] if system.strip() else []
    asked: list[Turn] = []
    for turn in turns:
        if turn.role != "assistant":
            asked.append(turn)
        elif turn.text.strip() or turn.calls:
            messages += [_message(each, pictures, read) for each in asked]
            messages.append(Message("assistant", turn.text, turn.calls, turn.reasoning))
            asked = []
        elif turn is not turns[-1]:
            # The results of tools answer calls that were told already, so they stay.
            asked = [each for each in asked if each.role == "tool"]
    messages += [_message(each, pictures, read) for each in asked]
    return tuple(messages)


def _message(turn: Turn, pictures: Pictures, read: dict[str, Image]) -> Message:
    """The pictures stand before the text: a place for one in it came there by pasting, and means none of them."""
    for each in turn.pictures:
        if each.digest not in read:
            read[each.digest] = pictures.read(each).image
    images = tuple(Image(read[each.digest].data, each.name) for each in turn.pictures)
    return Message(turn.role, turn.text.replace(PLACE, "") if images else turn.text, images=images)
