"""Chats leave in files and come back the same; what others wrote is read as far as it is sound."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from app.attachment import attach
from app.chats.errors import ChatMissingError, ChatsStorageError, TransferError
from app.chats.markdown import Words
from app.chats.portable import PortableChat, take_out
from app.chats.records import Timing
from app.chats.store import ChatStore
from engine.types import ToolCall
from tests import smalldisk
from tests.app.running import ROOT


def png(colour: str) -> bytes:
    file = io.BytesIO()
    Pillow.new("RGB", (40, 20), colour).save(file, "PNG")
    return file.getvalue()


def fill(store: ChatStore) -> int:
    """A chat with all that a chat can have."""
    folder = store.chats.add_folder("Mühlen")
    chat = store.chats.create("Water [mills]", "tiny", "Be brief.", {"temperature": 0.5}, folder)
    first = store.turns.begin(
        chat, "See\u2028this", None, [attach(png("red"), "red.png"), attach(png("blue"), "b.png")]
    )
    timing = Timing(12, 3.5, 0.25, 40, 8, 1.5)
    calls = [ToolCall("look", '{"at": "it"}')]
    store.turns.finish(first.reply, "A mill.", "hm", timing=timing, reason="length", calls=calls)
    failed = store.turns.answer(first.prompt, "large")
    store.turns.finish(failed, "An", state="failed", sentence="The drive is gone.")
    later = store.turns.begin(chat, "Why?", first.reply, [attach(png("red"), "again.png")])
    store.turns.finish(later.reply, "水車")
    store.turns.show(later.reply)
    gone = store.turns.begin(chat, "gone", later.reply)
    store.turns.delete(gone.prompt)
    store.chats.pin(chat)
    store.chats.set_draft(chat, "half")
    return chat


def portable(store: ChatStore, chat: int) -> PortableChat:
    with store.database.read() as connection:
        found = take_out(connection, chat)
    assert found is not None
    return found


def without_keys(chat: PortableChat) -> Any:
    """With numbers for the keys, and none that lead to what was deleted."""
    order = {message.key: number for number, message in enumerate(chat.messages)}
    return (
        {**chat.__dict__, "messages": None, "chosen": order.get(chat.chosen or "")},
        [
            {**each.__dict__, "key": 0, "parent": order.get(each.parent or ""), "chosen": order.get(each.chosen or "")}
            for each in chat.messages
        ],
    )


def test_an_export_comes_back_with_every_branch_picture_and_figure(store: ChatStore, folder: Path) -> None:
    chat = fill(store)
    store.chats.throw_away(store.chats.create("trash"))
    file = folder / "out" / "all.json"
    assert store.transfer.export_json(file) == 1
    assert json.loads(file.read_bytes())[0] == {"format": "millstream-chats", "version": 1}
    assert [each.name for each in file.parent.iterdir()] == ["all.json"]
    with ChatStore.open(folder / "other.sqlite") as other:
        done = other.transfer.import_file(file)
        assert (done.added, done.present, done.faults) == (1, 0, ())
        (line,) = other.chats.pinned()
        assert without_keys(portable(other, line.id)) == without_keys(portable(store, chat))
        assert [turn.text for turn in other.turns.path(line.id)] == ["See\u2028this", "A mill.", "Why?", "水車"]
        shown = other.turns.path(line.id)[0].pictures[0]
        assert other.pictures.read(shown) == store.pictures.read(shown)
        again = other.transfer.import_file(file)
        assert (again.added, again.present, again.faults) == (0, 1, ())
        assert len(other.search.find("水車")) == 1


def test_one_damaged_line_costs_one_chat(store: ChatStore, folder: Path) -> None:
    for name in ("one", "two", "three"):
        store.turns.begin(store.chats.create(name), f"in {name}", None)
    file = folder / "all.json"
    store.transfer.export_json(file)
    lines = file.read_text().split("\n")
    lines[3] = lines[3][:50] + "\0" + lines[3][60:]
    file.write_text("\n".join(lines))
    with ChatStore.open(folder / "other.sqlite") as other:
        done = other.transfer.import_file(file)
        assert done.added == 2
        assert len(done.faults) == 1 and "Entry 3 is damaged" in done.faults[0]
        assert {line.title for line in other.chats.page()} == {"one", "three"}


def test_of_a_file_that_was_cut_off_what_is_before_the_cut_is_read(store: ChatStore, folder: Path) -> None:
    for number in range(4):
        store.turns.begin(store.chats.create(str(number)), "Hello " * 50, None)
    file = folder / "all.json"
    store.transfer.export_json(file)
    file.write_bytes(file.read_bytes()[:-200])
    with ChatStore.open(folder / "other.sqlite") as other:
        done = other.transfer.import_file(file)
        assert (done.added, done.faults) == (3, ("Entry 5 is damaged, and was left out. The file ends within it.",))


def change(fields: dict[str, object]) -> Callable[[Any], object]:
    return lambda chat: chat.update(fields)


@pytest.mark.parametrize(
    ("spoil", "kept", "fault"),
    [
        (lambda chat: chat["messages"].__setitem__(1, 7), 2, "message 2: it is no object"),
        (lambda chat: chat["messages"][1].update(role="wizard"), 2, "its role is not known"),
        (lambda chat: chat["messages"][1].update(text=None), 2, "its text is missing"),
        (lambda chat: chat["messages"][2].update(parent="nobody"), 3, "the one before it is missing"),
        (lambda chat: chat["messages"][2].update(key=chat["messages"][0]["key"]), 2, "two of its name"),
        (lambda chat: chat["messages"][1].update(pictures=[{"digest": "x", "name": "y"}]), 3, "pictures are missing"),
        (lambda chat: chat["messages"][0].update(made=-1e10), 3, ""),
        (lambda chat: chat["messages"][1].update(timing={"tokens": 1e400, "tok_s": "fast"}), 3, ""),
        (change({"made": 1e300, "changed": "now", "settings": 3, "pinned": "yes", "chosen": "nobody"}), 3, ""),
        (change({"messages": "all"}), 0, "no list of messages"),
        (change({"uid": "../.."}), 0, "no name of its own"),
        (change({"title": ["a"]}), 0, "title is not a text"),
    ],
)
def test_a_bad_record_is_told_and_the_rest_is_kept(
    store: ChatStore, folder: Path, spoil: Callable[[Any], object], kept: int, fault: str
) -> None:
    chat = store.chats.create("spoilt")
    begun = store.turns.begin(chat, "a", None)
    store.turns.begin(chat, "b", begun.reply)
    store.turns.delete(store.turns.path(chat)[3].id)
    store.turns.begin(store.chats.create("sound"), "Hello", None)
    file = folder / "all.json"
    store.transfer.export_json(file)
    elements = json.loads(file.read_bytes())
    spoil(elements[1])
    file.write_text(json.dumps(elements))
    with ChatStore.open(folder / "other.sqlite") as other:
        done = other.transfer.import_file(file)
        shown = {line.title: other.turns.path(line.id) for line in other.chats.page()}
        assert len(shown["sound"]) == 2
        assert len(shown.get("spoilt", ())) == kept
        assert fault in done.faults[0] if fault else not done.faults


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"hello", b"{}", b'{"a": 1}', b"[" * 100_000, bytes(100), b"PK\3\4" * 9]
)
def test_a_file_that_holds_no_chats_is_refused(store: ChatStore, folder: Path, content: bytes) -> None:
    file = folder / "letter.json"
    file.write_bytes(content)
    with pytest.raises(TransferError, match="holds no chats"):
        store.transfer.import_file(file)
    with pytest.raises(TransferError, match="cannot be read"):
        store.transfer.import_file(folder / "absent.json")


def test_an_archive_that_was_damaged_on_its_way_is_refused(store: ChatStore, folder: Path) -> None:
    file = folder / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([{"mapping": {}}] * 500))
    data = bytearray(file.read_bytes())
    data[60:80] = b"\xff" * 20
    file.write_bytes(data)
    with pytest.raises(TransferError, match="is damaged"):
        store.transfer.import_file(file)


def test_markdown_shows_the_chosen_path_with_its_pictures(store: ChatStore, folder: Path) -> None:
    chat = fill(store)
    file = folder / "one.md"
    store.transfer.export_markdown(file, chat, Words(user="Du", reasoning="Gedanken"))
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Water [mills]\n")
    assert text.index("## System prompt\n\nBe brief.") < text.index("## Du\n") < text.index("## Model\n")
    assert "<details><summary>Gedanken</summary>\n\nhm\n\n</details>\n\nA mill." in text
    assert "An" not in text.split() and "gone" not in text
    (red, blue) = (store.turns.path(chat)[0].pictures[index].digest[:16] for index in (0, 1))
    assert f"![red.png](<pictures/{red}.png>)" in text and f"![again.png](<pictures/{red}.png>)" in text
    assert {each.name for each in (folder / "pictures").iterdir()} == {f"{red}.png", f"{blue}.png"}
    assert (folder / "pictures" / f"{red}.png").read_bytes() == png("red")
    with pytest.raises(ChatMissingError):
        store.transfer.export_markdown(folder / "none.md", 99)
    assert not (folder / "none.md").exists()


def test_every_chat_gets_a_file_of_its_own_with_a_name_that_any_system_takes(store: ChatStore, folder: Path) -> None:
    for title in ("a/b: c?", "a/b: c?", "", "CON", "山 é"):
        store.turns.begin(store.chats.create(title), "Hello", None)
    out = folder / "markdown"
    assert store.transfer.export_all_markdown(out) == 5
    names = {each.name for each in out.iterdir()}
    assert names == {"a-b- c.md", "a-b- c (2).md", "Untitled chat.md", "_CON.md", "山 é.md"}


@smalldisk.needed
def test_an_export_to_a_full_disk_leaves_the_file_that_was_there(folder: Path, tmp_path: Path) -> None:
    script = """
from pathlib import Path
from app.chats.errors import ChatsFullError
from app.chats.store import ChatStore
with ChatStore.open(Path("../big.sqlite").absolute()) as store:
    try:
        store.transfer.export_json(Path("out.json").absolute())
    except ChatsFullError as error:
        print(error)
print(Path("out.json").read_text(), [each.name for each in Path(".").iterdir()])
"""
    with ChatStore.open(folder / "big.sqlite") as store:
        store.turns.begin(store.chats.create(), "word " * 400_000, None)
    place = folder / "mounted"
    place.mkdir()
    done = smalldisk.run(
        [sys.executable, "-c", script], place, "1m", prepare="printf old > out.json", env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert "is full" in done.stdout and "old ['out.json']" in done.stdout


def node(id: str, parent: str | None, role: str = "", words: object = "", **more: object) -> tuple[str, dict[str, Any]]:
    content = words if isinstance(words, dict) else {"content_type": "text", "parts": [words]}
    message = {"id": id, "author": {"role": role}, "content": content, "create_time": 1000.0, **more} if role else None
    return id, {"id": id, "message": message, "parent": parent, "children": []}


def conversation(*nodes: tuple[str, dict[str, Any]], current: str = "", **more: object) -> dict[str, Any]:
    return {
        "conversation_id": "11-22",
        "title": "Mills",
        "create_time": 900.0,
        "update_time": 2000.5,
        "mapping": dict(nodes),
        "current_node": current,
        **more,
    }


def test_a_chatgpt_export_comes_with_its_branches_thoughts_and_times(store: ChatStore, folder: Path) -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "wheels…"}, {"summary": "stones"}]}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    pictured = {"content_type": "multimodal_text", "parts": [image, "And this?"]}
    talk = conversation(
        node("root", None),
        node("sys", "root", "system", "", metadata=hidden),
        node("u1", "sys", "user", "What is a mill?"),
        node("a1", "u1", "assistant", "A house."),
        node("t1", "u1", "assistant", thoughts),
        node("a2", "t1", "assistant", "Let me look.", metadata={"model_slug": "gpt-x"}),
        node("c1", "a2", "assistant", {"content_type": "code", "text": "search()"}, recipient="browser"),
        node("r1", "c1", "tool", "results"),
        node("a3", "r1", "assistant", "A machine."),
        node("u2", "a3", "user", pictured),
        node("a4", "u2", "assistant", "Yes."),
        current="a1",
    )
    file = folder / "conversations.json"
    file.write_text(json.dumps([talk]))
    done = store.transfer.import_file(file)
    assert (done.added, done.faults) == (1, ())
    (line,) = store.chats.page()
    assert (line.title, line.made, line.changed) == ("Mills", 900.0, 2000.5)
    shown = store.turns.path(line.id)
    assert [(turn.role, turn.text, turn.version, turn.versions) for turn in shown] == [
        ("user", "What is a mill?", 1, 1),
        ("assistant", "A house.", 1, 2),
    ]
    store.turns.choose(store.turns.siblings(shown[1].id)[1])
    shown = store.turns.path(line.id)
    assert [turn.text for turn in shown] == [
        *("What is a mill?", "Let me look.\n\nA machine.", "[picture]\n\nAnd this?", "Yes."),
    ]
    assert (shown[1].model, shown[1].reasoning, shown[1].made) == ("gpt-x", "wheels…\n\nstones", 1000.0)
    assert store.transfer.import_file(file).present == 1


def test_a_chatgpt_archive_is_read_past_bad_conversations(store: ChatStore, folder: Path) -> None:
    circle = conversation(
        node("u", None, "user", "kept"), node("x", "y", "user", "a"), node("y", "x", "user", "b"), conversation_id="2"
    )
    broken = conversation(
        node("u", None, "user", "also kept"),
        ("bad", {"message": {"author": 3}, "parent": "u"}),
        ("worse", 5),  # type: ignore[arg-type]
        node("later", "bad", "assistant", "after it"),
        conversation_id="3",
    )
    listed = [7, {"mapping": 3}, conversation(conversation_id="4"), circle, broken, {"what": "else"}]
    file = folder / "export.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("conversations-000.json", json.dumps(listed))
        archive.writestr("conversations-001.json", json.dumps([conversation(node("u", None, "user", "second file"))]))
    done = store.transfer.import_file(file)
    assert done.added == 3
    told = "\n".join(done.faults)
    for part in ("Entry 1 was", "Entry 2 was", "Entry 3 was", "in a circle", "author or its content", "Entry 6 was"):
        assert part in told
    texts = {tuple(turn.text for turn in store.turns.path(line.id)) for line in store.chats.page()}
    assert texts == {("kept",), ("also kept", "after it"), ("second file",)}


def test_a_conversation_of_any_depth_is_read(store: ChatStore, folder: Path) -> None:
    nodes = [node("0", None, "user", "0")]
    nodes += [node(str(i), str(i - 1), ("user", "assistant")[i % 2], str(i)) for i in range(1, 3000)]
    file = folder / "conversations.json"
    file.write_text(json.dumps([conversation(*nodes, current="2999")]))
    assert store.transfer.import_file(file).added == 1
    assert [turn.text for turn in store.turns.path(store.chats.page()[0].id)] == [str(i) for i in range(3000)]


def test_an_export_into_a_place_that_is_a_file_is_told(store: ChatStore, folder: Path) -> None:
    (folder / "taken").write_text("mine")
    with pytest.raises(ChatsStorageError):
        store.transfer.export_json(folder / "taken" / "out.json")
    assert (folder / "taken").read_text() == "mine"
