"""Messages as a tree: sending, replies, versions, what is shown, and what is taken away."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.attachment import Attachment
from app.chats.errors import ChatMissingError
from app.chats.records import Begun, Timing
from app.chats.store import ChatStore
from engine.types import Image, ToolCall


def exchange(store: ChatStore, chat: int, parent: int | None, prompt: str, reply: str) -> Begun:
    begun = store.turns.begin(chat, prompt, parent)
    store.turns.finish(begun.reply, reply)
    return begun


def texts(store: ChatStore, chat: int) -> list[str]:
    return [turn.text for turn in store.turns.path(chat)]


def versions(store: ChatStore, chat: int) -> list[tuple[int, int]]:
    return [(turn.version, turn.versions) for turn in store.turns.path(chat)]


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_what_is_sent_is_on_disk_with_its_empty_reply_before_the_model_is_asked(store: ChatStore, path: Path) -> None:
    chat = store.chats.create("Mills")
    store.chats.set_draft(chat, "What is")
    begun = store.turns.begin(chat, "What is a mill?", None, model="tiny")
    assert rows(path, "SELECT id, role, state, text FROM messages") == [
        (begun.prompt, "user", "done", "What is a mill?"),
        (begun.reply, "assistant", "under way", ""),
    ]
    assert store.chats.get(chat).draft == ""


def test_a_reply_keeps_all_that_the_engine_told_of_it(store: ChatStore) -> None:
    chat = store.chats.create()
    begun = store.turns.begin(chat, "Add", None, model="tiny")
    store.turns.checkpoint(begun.reply, "4", "two and")
    assert store.turns.path(chat)[1].reasoning == "two and"
    timing = Timing(12, 3.5, 0.25, 40, 8, 1.5)
    call = ToolCall("add", '{"a": 2}')
    store.turns.finish(begun.reply, "4.", "two and two", timing=timing, reason="length", calls=[call])
    reply = store.turns.path(chat)[1]
    assert (reply.text, reply.reasoning, reply.state, reply.model) == ("4.", "two and two", "done", "tiny")
    assert (reply.timing, reply.reason, reply.calls) == (timing, "length", (call,))
    with pytest.raises(ChatMissingError):
        store.turns.checkpoint(begun.reply, "late")
    assert texts(store, chat) == ["Add", "4."]


def test_the_last_replies_tell_what_they_took(store: ChatStore) -> None:
    chat = store.chats.create()
    for number in range(4):
        begun = store.turns.begin(chat, "Add", None, model=f"model {number}")
        store.turns.finish(begun.reply, "4", timing=Timing(number, number + 0.5) if number % 3 else None)
    last = [(model, timing) for _, model, timing in store.turns.timings()]
    assert last == [("model 2", Timing(2, 2.5)), ("model 1", Timing(1, 1.5))]
    assert len(store.turns.timings(limit=1)) == 1


def test_a_failed_reply_keeps_its_sentence_and_what_had_come(store: ChatStore) -> None:
    chat = store.chats.create()
    begun = store.turns.begin(chat, "Count", None)
    store.turns.finish(begun.reply, "one two", state="failed", sentence="The drive is gone.")
    reply = store.turns.path(chat)[1]
    assert (reply.state, reply.sentence, reply.text) == ("failed", "The drive is gone.", "one two")


def test_replies_made_anew_are_versions_and_each_keeps_what_followed_it(store: ChatStore) -> None:
    chat = store.chats.create()
    first = exchange(store, chat, None, "Hello", "Hi")
    exchange(store, chat, first.reply, "And?", "So.")
    second = store.turns.answer(first.prompt)
    store.turns.finish(second, "Good day")
    assert texts(store, chat) == ["Hello", "Good day"]
    assert versions(store, chat) == [(1, 1), (2, 2)]
    assert store.turns.siblings(second) == [first.reply, second]
    store.turns.choose(first.reply)
    assert texts(store, chat) == ["Hello", "Hi", "And?", "So."]
    assert versions(store, chat) == [(1, 1), (1, 2), (1, 1), (1, 1)]


def test_an_edited_message_begins_a_branch_even_if_it_is_the_first(store: ChatStore) -> None:
    chat = store.chats.create()
    first = exchange(store, chat, None, "Helo", "What?")
    edited = exchange(store, chat, None, "Hello", "Hi")
    later = exchange(store, chat, edited.reply, "More", "Less")
    again = exchange(store, chat, store.turns.path(chat)[2].parent, "Much more", "Much less")
    assert texts(store, chat) == ["Hello", "Hi", "Much more", "Much less"]
    assert versions(store, chat) == [(2, 2), (1, 1), (2, 2), (1, 1)]
    store.turns.choose(first.prompt)
    assert texts(store, chat) == ["Helo", "What?"]
    store.turns.show(later.reply)
    assert texts(store, chat) == ["Hello", "Hi", "More", "Less"]
    assert store.turns.siblings(again.prompt) == [later.prompt, again.prompt]


def test_a_message_that_is_deleted_takes_what_follows_with_it_until_that_is_undone(store: ChatStore) -> None:
    chat = store.chats.create()
    first = exchange(store, chat, None, "a", "b")
    old = exchange(store, chat, first.reply, "c", "d")
    new = exchange(store, chat, first.reply, "C", "D")
    exchange(store, chat, new.reply, "E", "F")
    store.turns.delete(new.prompt)
    assert texts(store, chat) == ["a", "b", "c", "d"]
    assert versions(store, chat)[2] == (1, 1)
    store.turns.restore(new.prompt)
    assert texts(store, chat) == ["a", "b", "C", "D", "E", "F"]
    store.turns.delete(new.prompt)
    store.turns.delete(old.prompt)
    assert texts(store, chat) == ["a", "b"]
    assert store.turns.purge() == 6
    with pytest.raises(ChatMissingError):
        store.turns.restore(new.prompt)


def test_nothing_below_a_deletion_is_found_and_an_earlier_one_outlasts_the_undoing(store: ChatStore) -> None:
    chat = store.chats.create()
    first = exchange(store, chat, None, "a", "b")
    early = exchange(store, chat, first.reply, "grindstone one", "d")
    exchange(store, chat, first.reply, "grindstone two", "f")
    store.turns.delete(early.prompt)
    store.turns.delete(first.prompt)
    assert store.search.find("grindstone") == []
    assert store.turns.path(chat) == []
    store.turns.restore(first.prompt)
    assert len(store.search.find("grindstone")) == 1
    assert texts(store, chat) == ["a", "b", "grindstone two", "f"]
    store.turns.restore(early.prompt)
    assert versions(store, chat)[2] == (2, 2)


def test_only_what_was_deleted_long_ago_is_purged_at_a_start(path: Path) -> None:
    with ChatStore.open(path) as store:
        chat = store.chats.create()
        first = exchange(store, chat, None, "a", "b")
        second = exchange(store, chat, None, "c", "d")
        store.turns.delete(first.prompt)
        store.turns.delete(second.prompt)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE messages SET deleted_at = 1.0 WHERE id = ?", (first.prompt,))
    with ChatStore.open(path) as store:
        store.turns.restore(second.prompt)
        assert texts(store, chat) == ["c", "d"]
        with pytest.raises(ChatMissingError):
            store.turns.restore(first.prompt)


def test_a_line_of_thousands_of_messages_is_opened_purged_and_deleted_whole(store: ChatStore) -> None:
    """SQLite's own cascades end after a thousand steps."""
    chat = store.chats.create()
    parent = store.turns.add(chat, None, "user", "0")
    head = parent
    with store.database.write() as connection:
        for number in range(1, 2500):
            connection.execute(
                "INSERT INTO messages (chat, parent, role, state, made, text) VALUES (?, ?, 'user', 'done', 0, ?)",
                (chat, parent, str(number)),
            )
            parent += 1
    assert texts(store, chat) == [str(number) for number in range(2500)]
    store.turns.show(parent)
    store.turns.delete(head)
    assert store.turns.path(chat) == []
    assert store.turns.purge() == 2500


def test_a_reply_cannot_follow_a_message_of_another_chat(store: ChatStore) -> None:
    one, other = store.chats.create(), store.chats.create()
    foreign = exchange(store, other, None, "a", "b")
    with pytest.raises(ChatMissingError):
        store.turns.begin(one, "c", foreign.reply)
    with pytest.raises(ChatMissingError):
        store.turns.begin(99, "c", None)
    assert store.turns.path(one) == []
    assert texts(store, other) == ["a", "b"]


def picture(name: str, data: bytes) -> Attachment:
    return Attachment(Image(data, name), 4, 2, 2, 1, bytes(range(6)))


def test_a_picture_is_kept_once_with_each_message_s_own_name_for_it_and_goes_with_the_last(
    store: ChatStore, path: Path
) -> None:
    chat, other = store.chats.create(), store.chats.create()
    store.turns.begin(chat, "See", None, [picture("a.png", b"A"), picture("b.png", b"B")])
    store.turns.begin(other, "See", None, [picture("again.png", b"A")])
    shown = store.turns.path(chat)[0].pictures
    assert [store.pictures.read(each) for each in shown] == [picture("a.png", b"A"), picture("b.png", b"B")]
    again = store.turns.path(other)[0].pictures[0]
    assert store.pictures.read(again) == picture("again.png", b"A")
    assert rows(path, "SELECT data FROM pictures ORDER BY data") == [(b"A",), (b"B",)]
    store.chats.throw_away(chat)
    store.chats.purge(chat)
    assert rows(path, "SELECT data FROM pictures") == [(b"A",)]
    store.chats.throw_away(other)
    assert store.chats.empty_trash() == 1
    assert rows(path, "SELECT data FROM pictures") == []
    with pytest.raises(ChatMissingError):
        store.pictures.read(again)


def test_text_that_no_file_can_hold_is_kept_as_far_as_it_can_be(store: ChatStore) -> None:
    chat = store.chats.create("\ud83d")
    store.turns.begin(chat, "half \ud83d and \0 nothing", None)
    assert texts(store, chat)[0] == "half \ufffd and \ufffd nothing"
