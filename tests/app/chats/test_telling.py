"""What the model is told of a stored chat."""

from __future__ import annotations

from app.attachment import Attachment
from app.chats.store import ChatStore
from app.chats.telling import told
from engine.types import PLACE, Image, Message, ToolCall


def test_a_question_without_a_reply_is_left_out_unless_it_is_the_one_asked_now(store: ChatStore) -> None:
    chat = store.chats.create()
    first = store.turns.begin(chat, "a", None)
    store.turns.finish(first.reply, "A", "hm")
    failed = store.turns.begin(chat, "b", first.reply)
    store.turns.finish(failed.reply, " \n", state="failed", sentence="No.")
    third = store.turns.begin(chat, "c", failed.reply)
    expected = (Message("user", "a"), Message("assistant", "A", reasoning="hm"), Message("user", "c"))
    assert told(store.turns.path(chat), store.pictures) == expected
    assert told(store.turns.path(chat), store.pictures, "Be brief.") == (Message("system", "Be brief."), *expected)
    store.turns.finish(third.reply, "C", state="stopped")
    assert told(store.turns.path(chat), store.pictures)[-1] == Message("assistant", "C")


def test_calls_and_their_results_are_told_as_they_were(store: ChatStore) -> None:
    chat, call = store.chats.create(), ToolCall("add", "{}")
    begun = store.turns.begin(chat, "Add", None)
    store.turns.finish(begun.reply, "", calls=[call])
    result = store.turns.add(chat, begun.reply, "tool", "4")
    store.turns.answer(result)
    assert told(store.turns.path(chat), store.pictures) == (
        Message("user", "Add"),
        Message("assistant", "", (call,)),
        Message("tool", "4"),
    )


def test_pictures_are_told_with_their_bytes_and_stand_before_the_text(store: ChatStore) -> None:
    chat = store.chats.create()
    picture = Attachment(Image(b"A", "a.png"), 4, 2, 2, 1, bytes(6))
    store.turns.begin(chat, f"See {PLACE}this", None, [picture])
    assert told(store.turns.path(chat), store.pictures) == (Message("user", "See this", images=(picture.image,)),)
