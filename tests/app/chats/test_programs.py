"""Several programs on one store, and programs that are killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

from app.chats.opening import CUT_OFF
from app.chats.store import ChatStore
from tests.app.running import ROOT, WAIT


def start(script: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "import sys\nfrom pathlib import Path\nfrom app.chats.store import ChatStore\n"]
    command[-1] += f"store = ChatStore.open(Path(sys.argv[1]))\n{script}"
    return subprocess.Popen(
        [*command, str(path), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


REPLYING = """
chat = store.chats.create("Mills")
begun = store.turns.begin(chat, "What is a mill?", None)
print("begun", flush=True)
text = ""
for number in range(1_000_000):
    text += f"word{number} "
    if number % 10 == 9:
        store.turns.checkpoint(begun.reply, text)
        print(number, flush=True)
"""


def test_a_program_killed_in_mid_reply_loses_nothing_before_its_last_checkpoint(path: Path) -> None:
    with start(REPLYING, path) as program:
        assert line(program) == "begun"
        number = 0
        while number < 200:
            number = int(line(program))
        program.kill()
        rest = program.stdout.read() if program.stdout else ""
    last = max([number, *(int(each) for each in re.findall(r"^\d+$", rest, re.M))])
    with ChatStore.open(path) as store:
        assert (store.cut_off, store.notices) == (1, ())
        prompt, reply = store.turns.path(store.chats.page()[0].id)
        assert (prompt.text, prompt.state) == ("What is a mill?", "done")
        assert (reply.state, reply.sentence) == ("stopped", CUT_OFF)
        words = reply.text.split()
        assert words == [f"word{each}" for each in range(len(words))]
        assert len(words) >= last + 1
        assert len(store.search.find("word199")) == 1


def test_a_program_killed_before_the_first_word_loses_no_prompt(path: Path) -> None:
    with start(
        REPLYING.replace("print", "import time; print").replace("text = ", "time.sleep(60)\ntext = "), path
    ) as it:
        assert line(it) == "begun"
        it.kill()
    with ChatStore.open(path) as store:
        prompt, reply = store.turns.path(store.chats.page()[0].id)
        assert (prompt.text, reply.state, reply.text) == ("What is a mill?", "stopped", "")


def test_a_reply_that_another_window_is_writing_stays_under_way(path: Path) -> None:
    with start(REPLYING + "    sys.stdin.readline()\n", path) as program:
        assert line(program) == "begun"
        with ChatStore.open(path) as store:
            assert store.cut_off == 0
            assert store.turns.path(store.chats.page()[0].id)[1].state == "under way"
        program.kill()


WRITING = """
parent = None
for number in range(60):
    parent = store.turns.add(int(sys.argv[2]), parent, "user", f"{sys.argv[3]} {number}")
store.close()
"""


def test_two_programs_write_at_once_and_neither_loses_a_message(path: Path) -> None:
    with ChatStore.open(path) as store:
        one, other = store.chats.create("one"), store.chats.create("other")
        programs = [start(WRITING, path, str(chat), name) for chat, name in ((one, "one"), (other, "other"))]
        for number in range(60):
            store.turns.add(one, None, "user", f"mine {number}")
        for program in programs:
            program.communicate(timeout=WAIT)
        assert [program.returncode for program in programs] == [0, 0]
        assert [turn.text for turn in store.turns.path(other)] == [f"other {number}" for number in range(60)]
        with store.database.read() as connection:
            assert connection.execute("SELECT count(*) FROM messages").fetchone() == (180,)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_window_learns_what_another_wrote_and_nothing_else(path: Path) -> None:
    with ChatStore.open(path) as mine, ChatStore.open(path) as other:
        assert not mine.changed_elsewhere()
        chat = other.chats.create("new")
        assert mine.changed_elsewhere()
        assert not mine.changed_elsewhere()
        mine.chats.rename(chat, "mine")
        assert not mine.changed_elsewhere()
        begun = other.turns.begin(chat, "Hello", None)
        assert mine.changed_elsewhere()
        other.turns.checkpoint(begun.reply, "Hi")
        assert not mine.changed_elsewhere()
        other.turns.finish(begun.reply, "Hi there")
        assert mine.changed_elsewhere()


def test_every_thread_reads_and_writes_and_none_is_in_the_other_s_way(store: ChatStore) -> None:
    chat = store.chats.create()
    faults: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(20):
                store.turns.add(chat, None, "user", f"{name} {number}")
                store.turns.path(chat)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert not faults
    assert store.turns.path(chat)[0].versions == 80


def test_a_thread_reads_while_another_is_in_the_middle_of_writing(store: ChatStore) -> None:
    chat = store.chats.create("before")
    seen: list[str] = []
    with store.database.write() as connection:
        connection.execute("UPDATE chats SET title = 'after'")
        reader = threading.Thread(target=lambda: seen.append(store.chats.get(chat).title))
        reader.start()
        reader.join(WAIT)
    assert seen == ["before"]
    assert store.chats.get(chat).title == "after"
