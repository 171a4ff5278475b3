"""How fast the chats on disk are: opening a long one, searching, listing, and what sending and a checkpoint take.

`python -m bench.chats [folder]` makes a store in that folder, or in a temporary one, and prints milliseconds: the
median and the most of several runs. The folder should lie on the disk that is to be judged.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.chats.store import ChatStore

LONG = 2_000
"""Messages of the chat that is opened."""
SEARCHED = 10_000
"""Messages that are searched, the long chat's among them."""
RUNS = 15
WORDS = 120
"""Words of a message."""


def words(noise: random.Random, vocabulary: list[str]) -> str:
    return " ".join(noise.choices(vocabulary, k=WORDS))


def fill(store: ChatStore, noise: random.Random) -> int:
    """→ the long chat. Written past `Turns`, which waits for the disk at each message."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(noise.choices(letters, k=noise.randint(2, 9))) for _ in range(5_000)]
    sizes = [LONG] + [80] * ((SEARCHED - LONG) // 80)
    chats = [store.chats.create(words(noise, vocabulary)[:40]) for _ in sizes]
    with store.database.write() as connection:
        for chat, size in zip(chats, sizes, strict=True):
            parent = None
            for number in range(size):
                text = f"{words(noise, vocabulary)} mill"
                if number % 500 == 499:
                    text += " Mühlstein 水車小屋"
                parent = connection.execute(
                    "INSERT INTO messages (chat, parent, role, state, made, text) VALUES (?, ?, ?, 'done', ?, ?)",
                    (chat, parent, ("user", "assistant")[number % 2], time.time(), text),
                ).lastrowid
    return chats[0]


def measure(name: str, work: Callable[[], object]) -> None:
    took = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        took.append((time.perf_counter() - start) * 1e3)
    print(f"{name:48}{statistics.median(took):9.2f} ms   at most {max(took):9.2f} ms", flush=True)


def main(folder: Path) -> None:
    path = folder / "chats.sqlite"
    with ChatStore.open(path) as store:
        start = time.perf_counter()
        long = fill(store, random.Random(7))
        took = time.perf_counter() - start
        print(f"{SEARCHED} messages, {path.stat().st_size / 1e6:.0f} MB, written in {took:.1f} s")
    measure("open the store, read through", lambda: ChatStore.open(path).close())
    with ChatStore.open(path) as store:
        measure(f"open a chat of {LONG} messages", lambda: store.turns.path(long))
        measure("list the first page of chats", store.chats.page)
        measure("search a rare word", lambda: store.search.find("Mühlstein"))
        measure("search two signs of Japanese", lambda: store.search.find("水車"))
        measure("search a word that is in every message", lambda: store.search.find("mill"))
        measure("search two letters that are in every message", lambda: store.search.find("mi"))
        measure("search what is nowhere", lambda: store.search.find("nowhere-at-all"))
        chat = store.chats.create("new")
        begun = store.turns.begin(chat, "Hello", None)
        text = "word " * 20_000
        measure("send a prompt", lambda: store.turns.begin(chat, "Hello", None))
        measure("checkpoint a reply of 20 000 words", lambda: store.turns.checkpoint(begun.reply, text))
        measure("finish a reply of 20 000 words", lambda: store.turns.finish(begun.reply, text))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
