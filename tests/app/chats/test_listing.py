"""Chats in lists: pages, days, pins, folders, and the trash."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime
from pathlib import Path

import pytest

from app.chats.errors import ChatMissingError, ChatsError
from app.chats.listing import by_day
from app.chats.store import ChatStore


def set_changed(path: Path, chat: int, when: float) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chats SET changed = ? WHERE id = ?", (when, chat))


def test_pages_go_on_where_the_last_one_ended_even_among_chats_of_one_moment(store: ChatStore, path: Path) -> None:
    made = [store.chats.create(str(number)) for number in range(7)]
    for chat in made:
        set_changed(path, chat, 1000.0 if chat < 4 else 2000.0)
    pages, last = [], None
    while page := store.chats.page(after=last, limit=3):
        pages.append([line.id for line in page])
        last = page[-1]
    assert pages == [[7, 6, 5], [4, 3, 2], [1]]


def test_chats_are_grouped_by_the_day_of_this_time_zone(store: ChatStore, path: Path) -> None:
    chats = [store.chats.create() for _ in range(3)]
    times = [datetime(2026, 5, 1, 0, 1), datetime(2026, 4, 30, 23, 59), datetime(2026, 4, 30, 0, 1)]
    for chat, when in zip(chats, times, strict=True):
        set_changed(path, chat, when.timestamp())
    days = [(day, [line.id for line in lines]) for day, lines in by_day(store.chats.page())]
    assert days == [(date(2026, 5, 1), [chats[0]]), (date(2026, 4, 30), [chats[1], chats[2]])]


def test_a_message_brings_its_chat_to_the_top_and_a_new_name_does_not(store: ChatStore, path: Path) -> None:
    old, new = store.chats.create("old"), store.chats.create("new")
    set_changed(path, old, 1000.0)
    store.chats.rename(old, "Old")
    assert [line.title for line in store.chats.page()] == ["new", "Old"]
    store.turns.begin(old, "Hello", None)
    assert [line.id for line in store.chats.page()] == [old, new]


def test_pinned_chats_are_a_list_of_their_own(store: ChatStore) -> None:
    one, two = store.chats.create("one"), store.chats.create("two")
    store.chats.pin(one)
    assert [line.id for line in store.chats.pinned()] == [one]
    assert [line.id for line in store.chats.page()] == [two]
    store.chats.pin(one, False)
    assert store.chats.pinned() == []


def test_folders_hold_chats_and_leave_them_when_they_go(store: ChatStore) -> None:
    work, tax = store.chats.add_folder("Work"), store.chats.add_folder(" tax  2026 ")
    assert store.chats.add_folder("Work") == work
    chat = store.chats.create("one", folder=work)
    other = store.chats.create("two")
    store.chats.move(other, work)
    assert [(each.name, each.chats) for each in store.chats.folders()] == [("tax 2026", 0), ("Work", 2)]
    assert {line.id for line in store.chats.page(folder=work)} == {chat, other}
    store.chats.rename_folder(work, "Job")
    with pytest.raises(ChatsError, match="There is a folder Job already"):
        store.chats.rename_folder(tax, "Job")
    with pytest.raises(ChatsError, match="needs a name"):
        store.chats.add_folder(" ")
    store.chats.remove_folder(work)
    assert store.chats.get(chat).folder is None
    with pytest.raises(ChatMissingError):
        store.chats.move(chat, work)


def test_the_trash_keeps_a_chat_until_it_is_emptied(store: ChatStore) -> None:
    kept, lost = store.chats.create("kept"), store.chats.create("lost")
    with pytest.raises(ChatMissingError):
        store.chats.purge(kept)
    store.chats.throw_away(kept)
    store.chats.throw_away(lost)
    assert store.chats.page() == []
    assert [line.id for line in store.chats.trash()] == [lost, kept]
    store.chats.restore(kept)
    assert store.chats.empty_trash() == 1
    assert [line.id for line in store.chats.page()] == [kept]
    with pytest.raises(ChatMissingError):
        store.chats.get(lost)


def test_a_chat_keeps_what_belongs_to_it(store: ChatStore, path: Path) -> None:
    chat = store.chats.create("Mühle", "tiny", "Be brief.", {"temperature": 0.5, "stop": ["é"]})
    store.chats.set_draft(chat, "half a sen")
    store.chats.set_model(chat, "large")
    store.chats.set_system(chat, "Be long.")
    found = store.chats.get(chat)
    assert (found.title, found.model, found.system, found.draft) == ("Mühle", "large", "Be long.", "half a sen")
    assert found.settings == {"temperature": 0.5, "stop": ["é"]}
    store.chats.set_settings(chat, {})
    assert store.chats.get(chat).settings == {}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE chats SET settings = '[[['")
    assert store.chats.get(chat).settings == {}
