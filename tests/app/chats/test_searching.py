"""Words are found in any script, marked where they stand, and only where they still are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chats import schema
from app.chats.store import ChatStore

TEXTS = {
    "latin": "The old Mühle by the river grinds the corn of the whole valley.",
    "cyrillic": "Старая мельница у реки мелет зерно всей долины.",
    "chinese": "河边的老水车磨着整个山谷的谷物。",
    "arabic": "الطاحونة القديمة عند النهر تطحن حبوب الوادي كله.",
}


def fill(store: ChatStore) -> int:
    chat = store.chats.create("Water mills")
    parent = None
    for text in TEXTS.values():
        parent = store.turns.add(chat, parent, "user", text)
    return chat


def marked(store: ChatStore, words: str) -> list[list[str]]:
    """The marked pieces of each hit."""
    return [
        [hit.snippet.text[start:end] for start, end in hit.snippet.marks]
        for hit in store.search.find(words)
        if hit.message is not None
    ]


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        ("mühle", ["Mühle"]),
        ("МЕЛЬНИЦА", ["мельница"]),
        ("老水车", ["老水车"]),
        ("水车", ["水车"]),
        ("车", ["车"]),
        ("النهر", ["النهر"]),
        ("valley corn", ["corn", "valley"]),
        ('"by the river"', ["by the river"]),
        ("У реки", ["у", "реки", "у"]),
    ],
)
def test_words_are_found_and_marked_in_every_script(store: ChatStore, words: str, pieces: list[str]) -> None:
    fill(store)
    found = marked(store, words)
    assert len(found) == 1
    assert set(pieces) <= set(found[0])
    assert found[0][0] == pieces[0]


@pytest.mark.parametrize("words", ["", "  ", '""', '"', "millstone", "Mühle мельница", "水草", "%", "_", "''"])
def test_what_is_not_there_is_not_found(store: ChatStore, words: str) -> None:
    fill(store)
    assert store.search.find(words) == []


@pytest.mark.parametrize("words", ["100%", "a_b", '*"', "NEAR(", "(", "-x", "text:", "\\", "a AND b OR NOT c", "\0"])
def test_no_sign_has_a_meaning_of_its_own(store: ChatStore, words: str) -> None:
    chat = store.chats.create()
    store.turns.add(chat, None, "user", f"before {words} after")
    store.turns.add(chat, None, "user", "100 axb near text x")
    assert len(store.search.find(words)) == 1


def test_an_older_sqlite_finds_the_same_words(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "best_tokenizer", lambda: "unicode61")
    with ChatStore.open(path) as store:
        fill(store)
        for words, piece in [("river", "river"), ("水车", "水车"), ("МЕЛЬ", "мель"), ("النهر", "النهر")]:
            assert marked(store, words) == [[piece]]
    monkeypatch.undo()
    with ChatStore.open(path) as store, store.database.read() as connection:
        assert schema.tokenizer(connection) == schema.best_tokenizer()
        assert marked(store, "老水车") == [["老水车"]]


def test_titles_come_first_and_pages_go_on_over_both(store: ChatStore) -> None:
    for number in range(3):
        chat = store.chats.create(f"mill {number}")
        for text in ("a mill", "no match", "the mill"):
            store.turns.add(chat, None, "user", text)
    whole = [(hit.chat, hit.message) for hit in store.search.find("mill")]
    assert [message for _, message in whole[:3]] == [None] * 3
    assert [message for _, message in whole[3:]] == [9, 7, 6, 4, 3, 1]
    pages = [store.search.find("mill", limit=2, offset=offset) for offset in range(0, 10, 2)]
    assert [(hit.chat, hit.message) for page in pages for hit in page] == whole
    title = store.search.find("MILL")[0].title
    assert [title.text[start:end] for start, end in title.marks] == ["mill"]


def test_the_index_follows_every_change(store: ChatStore) -> None:
    chat = store.chats.create("untitled")
    begun = store.turns.begin(chat, "question", None)
    store.turns.checkpoint(begun.reply, "windmill")
    assert store.search.find("windmill") == []
    store.turns.finish(begun.reply, "watermill")
    assert [hit.message for hit in store.search.find("watermill")] == [begun.reply]
    store.turns.finish(begun.reply, "treadmill")
    assert store.search.find("watermill") == []
    store.chats.rename(chat, "treadmills")
    assert [hit.message for hit in store.search.find("treadmill")] == [None, begun.reply]
    assert store.search.find("untitled") == []
    store.turns.delete(begun.reply)
    assert [hit.message for hit in store.search.find("treadmill")] == [None]
    store.turns.restore(begun.reply)
    store.chats.throw_away(chat)
    assert store.search.find("treadmill") == []
    assert len(store.search.find("treadmill", trash=True)) == 2
    store.chats.empty_trash()
    assert store.search.find("treadmill", trash=True) == []


def test_a_hit_far_down_a_long_text_is_shown_with_what_stands_around_it(store: ChatStore) -> None:
    chat = store.chats.create()
    store.turns.add(chat, None, "assistant", "chaff " * 5000 + "\n\tone grain " + "husk " * 5000)
    (hit,) = store.search.find("grain")
    assert hit.snippet.text.startswith("…") and hit.snippet.text.endswith("…")
    assert len(hit.snippet.text) < 200
    assert "  one grain husk" in hit.snippet.text
    assert [hit.snippet.text[start:end] for start, end in hit.snippet.marks] == ["grain"]


def test_a_damaged_index_is_made_anew_from_the_texts(store: ChatStore) -> None:
    fill(store)
    with store.database.write() as connection:
        connection.execute("DELETE FROM message_index_data WHERE id > 10")
    assert marked(store, "Mühle") == [["Mühle"]]
    assert marked(store, "мельница") == [["мельница"]]
