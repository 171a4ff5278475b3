"""Files that are damaged, newer, or on a disk that refuses: what can be had is had, and the person is told."""

from __future__ import annotations

import json
import os
import random
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.chats import schema
from app.chats.errors import ChatsDamagedError, ChatsError, ChatsVersionError
from app.chats.store import ChatStore
from tests import smalldisk
from tests.app.running import ROOT

SENTENCE = "A mill stands by the river, and its wheel turns day and night. "


def fill(path: Path, chats: int = 20, messages: int = 10) -> None:
    with ChatStore.open(path) as store:
        for number in range(chats):
            chat = store.chats.create(f"chat {number}", folder=store.chats.add_folder("Mills"))
            parent = None
            for place in range(messages):
                parent = store.turns.add(chat, parent, "user", f"{number}.{place} " + SENTENCE * 8)


def texts(store: ChatStore) -> set[str]:
    return {turn.text for line in store.chats.page() for turn in store.turns.path(line.id)}


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob("chats damaged *.sqlite"))


def expect_usable(store: ChatStore) -> None:
    with store.database.read() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    begun = store.turns.begin(store.chats.create("after"), "still zarking", None)
    store.turns.finish(begun.reply, "yes")
    assert len(store.search.find("zarking")) == 1


def test_a_new_store_is_kept_and_has_nothing_to_say(store: ChatStore, path: Path) -> None:
    assert (store.kept, store.writable, store.notices, store.cut_off) == (True, True, (), 0)
    with store.database.read() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert store.chats.page() == []


def test_a_store_that_was_closed_leaves_one_file_and_no_owner(path: Path) -> None:
    ChatStore.open(path).close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["chats.sqlite", "chats.sqlite-open"]
    assert {each.name for each in path.with_name("chats.sqlite-open").iterdir()} <= {"gate"}


def damage_tail(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3] + bytes(len(data) // 3)


def damage_end(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def damage_middle(data: bytes) -> bytes:
    noise = random.Random(3)
    pages = len(data) // 4096
    changed = bytearray(data)
    for page in range(pages // 3, pages // 3 + 12):
        changed[page * 4096 : page * 4096 + 4096] = noise.randbytes(4096)
    return bytes(changed)


@pytest.mark.parametrize("damage", [damage_tail, damage_end, damage_middle])
def test_a_damaged_file_is_set_aside_and_what_can_be_read_is_there_again(path: Path, damage: object) -> None:
    fill(path)
    with ChatStore.open(path) as store:
        before = texts(store)
    assert callable(damage)
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with ChatStore.open(path) as store:
        (notice,) = store.notices
        (kept,) = aside(path)
        assert kept.name in notice and "was damaged" in notice
        assert kept.read_bytes() == damaged
        found = texts(store)
        assert found <= before
        assert len(found) > len(before) // 4
        expect_usable(store)
    with ChatStore.open(path) as store:
        assert store.notices == ()


@pytest.mark.parametrize("content", [bytes(50_000), b"not a database, but a letter\n" * 999, b"SQLite format 3\0"])
def test_of_a_file_that_is_no_longer_one_nothing_is_deleted(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with ChatStore.open(path) as store:
        assert "nothing in it could be read" in store.notices[0]
        assert [kept.read_bytes() for kept in aside(path)] == [content]
        expect_usable(store)


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.touch()
    with ChatStore.open(path) as store:
        assert store.notices == ()
        expect_usable(store)


def test_a_message_whose_chat_and_forerunner_are_lost_is_kept(path: Path) -> None:
    fill(path, chats=2, messages=6)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM chats WHERE id = 1")
        connection.execute("DELETE FROM messages WHERE id = 3")
    data = bytearray(path.read_bytes())
    data[-4096:] = b"\xff" * 4096
    path.write_bytes(data)
    with ChatStore.open(path) as store:
        assert store.notices
        lost = [turn.text for turn in store.turns.path(1)]
        assert store.chats.get(1).title == "Recovered chat"
        assert [text.split()[0] for text in lost][:3] == ["0.0", "0.1", "0.3"]
        expect_usable(store)


def test_a_row_that_reads_as_something_else_is_not_taken_for_a_message(path: Path) -> None:
    fill(path, chats=1, messages=4)
    with closing(sqlite3.connect(path)) as connection, connection:
        for column, value in (("text", b"\xff\xfe"), ("made", "noon"), ("role", "wizard")):
            connection.execute(f"UPDATE messages SET {column} = ? WHERE id = (SELECT max(id) FROM messages)", (value,))
            connection.execute("INSERT INTO messages (chat, role, state, made) VALUES (1, 'user', 'done', 0)")
    data = bytearray(path.read_bytes())
    data[-4096:] = b"\xff" * 4096
    path.write_bytes(data)
    with ChatStore.open(path) as store:
        assert store.notices
        with store.database.read() as connection:
            kept = connection.execute("SELECT role, text FROM messages ORDER BY id").fetchall()
        assert [role for role, _ in kept] == ["user"] * 5
        assert all(isinstance(text, str) for _, text in kept)


def test_mending_that_was_cut_off_goes_on_at_the_next_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    path.write_bytes(damage_tail(path.read_bytes()))
    replace = os.replace

    def cut_off(source: Path, target: Path) -> None:
        if target == path:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("app.chats.salvage.os.replace", cut_off)
        ChatStore.open(path)
    assert not path.exists() and len(aside(path)) == 1
    with ChatStore.open(path) as store:
        assert len(texts(store)) > 50
        expect_usable(store)


def test_damage_while_another_window_is_open_is_told_and_nothing_is_moved(path: Path) -> None:
    fill(path)
    with ChatStore.open(path):
        path.write_bytes(damage_tail(path.read_bytes()))
        with pytest.raises(ChatsDamagedError, match="Close it, and start Millstream again"):
            ChatStore.open(path)
    assert aside(path) == []


def test_damage_that_is_met_in_use_is_mended_at_the_next_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the file is."""
    monkeypatch.setattr("app.chats.opening.ALWAYS_CHECKED", 0)
    fill(path)
    path.write_bytes(damage_tail(path.read_bytes()))
    with ChatStore.open(path) as store, pytest.raises(ChatsDamagedError, match="Start Millstream again"):
        texts(store)
    with ChatStore.open(path) as store:
        assert "was damaged" in store.notices[0]
        assert texts(store)


def test_a_newer_file_is_shown_and_not_changed(path: Path) -> None:
    fill(path, 1, 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE chats ADD COLUMN colour TEXT")
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with ChatStore.open(path) as store:
        assert not store.writable
        assert "newer Millstream" in store.notices[0]
        assert len(texts(store)) == 2
        assert len(store.search.find("river")) == 2
        with pytest.raises(ChatsVersionError, match="update it"):
            store.turns.begin(1, "Hello", None)
    with closing(sqlite3.connect(path)) as connection:
        assert schema.version(connection) == schema.VERSION + 1


def test_a_newer_file_that_is_too_different_is_refused_and_left_alone(path: Path) -> None:
    fill(path, 1, 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE messages RENAME COLUMN text TO body")
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(ChatsVersionError, match="Update it"):
        ChatStore.open(path)
    assert aside(path) == []


def test_an_older_file_is_led_to_this_version_or_stays_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 1, 2)
    longer = (*schema.MIGRATIONS, "ALTER TABLE chats ADD COLUMN colour TEXT; CREATE INDEX colours ON chats (colour);")
    monkeypatch.setattr(schema, "MIGRATIONS", (*longer[:-1], longer[-1] + "CREATE TABLE chats (id);"))
    monkeypatch.setattr(schema, "VERSION", 2)
    with pytest.raises(ChatsError):
        ChatStore.open(path)
    with closing(sqlite3.connect(path)) as connection:
        assert schema.version(connection) == 1
        assert "colour" not in {row[1] for row in connection.execute("PRAGMA table_info(chats)")}
    monkeypatch.setattr(schema, "MIGRATIONS", longer)
    with ChatStore.open(path) as store:
        assert len(texts(store)) == 2
        with store.database.read() as connection:
            assert schema.version(connection) == 2


WITHOUT_WRITING = """
import json, sys
from pathlib import Path
from app.chats.store import ChatStore
with ChatStore.open(Path("chats.sqlite").absolute()) as store:
    old = [turn.text for line in store.chats.page() for turn in store.turns.path(line.id)]
    begun = store.turns.begin(store.chats.create("new"), "Hello", None)
    store.turns.finish(begun.reply, "Hi there")
    found = len(store.search.find("Hi there"))
    print(json.dumps([old, found, store.kept, store.writable, store.notices]))
"""


def without_writing(place: Path, size: str, prepare: str) -> list[Any]:
    """What that program prints of a store on a disk of so much room, as it was prepared."""
    place.mkdir()
    done = smalldisk.run(
        [sys.executable, "-c", WITHOUT_WRITING],
        place,
        size,
        prepare=prepare,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    told: list[Any] = json.loads(done.stdout)
    return told


@smalldisk.needed
@pytest.mark.parametrize("state", ["closed", "killed"])
def test_a_profile_that_may_only_be_read_works_from_memory_and_says_so(path: Path, state: str) -> None:
    fill(path, 1, 2)
    source = path.parent / "source"
    source.mkdir()
    if state == "killed":  # with a log beside it
        store = ChatStore.open(path)
        store.turns.add(1, 2, "user", "1.2")
        for beside in path.parent.glob("chats.sqlite*"):
            if beside.is_file() and not beside.name.endswith("-shm"):
                (source / beside.name).write_bytes(beside.read_bytes())
        store.close()
    else:
        (source / path.name).write_bytes(path.read_bytes())
    prepare = f"cp {shlex.quote(str(source))}/* .; mount -o remount,ro ."
    old, found, kept, writable, notices = without_writing(path.parent / "mounted", "8m", prepare)
    assert len(old) == (3 if state == "killed" else 2)
    assert (found, kept, writable) == (1, False, True)
    assert "may only be read" in notices[0] and "kept in memory" in notices[0]


@smalldisk.needed
def test_a_disk_without_any_room_at_the_start_works_from_memory_and_says_so(path: Path) -> None:
    fill(path, 1, 2)
    prepare = f"cp {shlex.quote(str(path))} .; cat /dev/zero > ballast 2> /dev/null || true"
    old, found, kept, writable, notices = without_writing(path.parent / "mounted", "1m", prepare)
    assert (len(old), found, kept, writable) == (2, 1, False, True)
    assert "is full" in notices[0] and "kept in memory" in notices[0]


FILLING = """
import json, sys
from pathlib import Path
from app.chats.errors import ChatsFullError
from app.chats.store import ChatStore
path = Path("chats.sqlite").absolute()
told = []
with ChatStore.open(path) as store:
    chat = store.chats.create("full")
    begun = store.turns.begin(chat, "Hello", None)
    kept, text = "", ""
    try:
        for _ in range(400):
            text += "a stone turns, " * 4000
            store.turns.checkpoint(begun.reply, text)
            kept = text
    except ChatsFullError as error:
        told.append(str(error))
    shown = store.turns.path(chat)[1]
    told.append([shown.state, shown.text == kept, len(kept) > 0])
    try:
        store.turns.begin(chat, "More " * 900_000, begun.reply)
    except ChatsFullError as error:
        told.append(str(error))
Path("ballast").unlink()
with ChatStore.open(path) as store:
    shown = store.turns.path(chat)
    told.append([len(shown), shown[1].text == kept, store.kept])
    store.turns.finish(begun.reply, text)
    told.append(store.turns.path(chat)[1].text == text)
print(json.dumps(told))
"""


@smalldisk.needed
def test_a_full_disk_is_told_and_loses_nothing_that_was_kept(folder: Path) -> None:
    done = smalldisk.run(
        [sys.executable, "-c", FILLING],
        folder,
        "24m",
        prepare="head -c 16000000 /dev/zero > ballast",
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr
    first, shown, second, again, later = json.loads(done.stdout)
    assert "is full" in first and "is full" in second
    assert shown == ["under way", True, True]
    assert again == [2, True, True]
    assert later is True


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_folder_that_may_not_be_written_works_from_memory(path: Path) -> None:
    fill(path, 1, 2)
    path.parent.chmod(0o500)
    try:
        with ChatStore.open(path) as store:
            assert not store.kept
            assert len(texts(store)) == 2
    finally:
        path.parent.chmod(0o700)


def test_a_check_that_was_cut_off_is_made_at_the_next_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chats.opening.ALWAYS_CHECKED", 0)
    fill(path)
    path.with_name("chats.sqlite-open").joinpath("crashed").touch()
    path.write_bytes(damage_tail(path.read_bytes()))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("app.chats.opening.is_sound", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        ChatStore.open(path)
    with ChatStore.open(path) as store:
        assert "was damaged" in store.notices[0]


@pytest.mark.skipif(os.name == "nt", reason="Windows gives a person's folders to that person alone by itself")
def test_only_the_person_can_read_the_chats(path: Path) -> None:
    with ChatStore.open(path) as store:
        store.chats.create()
        modes = {beside.name: beside.stat().st_mode & 0o777 for beside in path.parent.iterdir() if beside.is_file()}
    assert modes.keys() >= {"chats.sqlite", "chats.sqlite-wal"}
    assert set(modes.values()) == {0o600}


def test_an_index_that_a_crash_left_behind_its_texts_is_made_anew(path: Path) -> None:
    fill(path, 1, 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE message_index_data SET block = zeroblob(length(block)) WHERE id > 10")
    path.with_name("chats.sqlite-open").joinpath("crashed").touch()
    with ChatStore.open(path) as store:
        assert store.notices == ()
        assert len(store.search.find("river")) == 2
