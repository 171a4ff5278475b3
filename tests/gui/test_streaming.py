"""A real model that is larger than the memory it is granted, and its file lost in the middle of a reply."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.local_engine import load_local
from app.placement import sentence
from app.requests import Loading, Notice
from app.window import Window
from engine import Budgets, Engine, Message, Settings, Text
from tests.gui.conftest import MakeWindow
from tests.tiny_chat import write_tiny_chat

LONG_S = 60_000
LITTLE = Budgets(ram=6_000_000, chunk=16)
QUESTION = "Tell me about water mills."
LONG = Settings(max_tokens=120, temperature=0)
SHORT = Settings(max_tokens=20, temperature=0)


@pytest.fixture
def mill(folder: Path) -> Path:
    """A model of 13 MB."""
    return write_tiny_chat(folder / "mill.gguf", ffn=4096, layers=16)


@pytest.fixture
def window(make_window: MakeWindow, mill: Path, qtbot: QtBot) -> Window:
    """With the model, most of which is on disk."""
    window = make_window(partial(load_local, budgets=LITTLE))
    window.chat.load(str(mill))
    wait_for(window, qtbot, "ready")
    return window


def wait_for(window: Window, qtbot: QtBot, state: str) -> None:
    qtbot.waitUntil(lambda: window.chat.state == state, timeout=LONG_S)


def test_it_says_that_it_streams_while_it_loads_and_afterwards(
    make_window: MakeWindow, mill: Path, qtbot: QtBot
) -> None:
    window = make_window(partial(load_local, budgets=LITTLE))
    notices: list[Notice] = []
    window.bridge.notice.connect(notices.append)
    window.chat.load(str(mill))
    wait_for(window, qtbot, "ready")
    plans = [notice.plan for notice in notices if isinstance(notice, Loading) and notice.plan]
    assert plans and plans[0].streams and sentence(plans[0]).startswith("Streams ")
    assert window.model_bar.fit_button.text().startswith("streams from disk, about ")
    disk = [window.model_bar.placement.weights.item(row, 1).text() for row in range(3)]
    assert any(cell.endswith("MB") for cell in disk)


def test_it_answers_as_it_would_from_memory(window: Window, mill: Path, qtbot: QtBot) -> None:
    window.chat.settings = SHORT
    window.chat.send(QUESTION)
    wait_for(window, qtbot, "ready")
    with Engine.load(mill) as engine:
        alone = "".join(e.text for e in engine.chat([Message("user", QUESTION)], SHORT) if isinstance(e, Text))
    assert window.conversation.reply.text == alone


def test_a_file_truncated_in_mid_reply_keeps_the_words_and_the_chat_goes_on_once_it_is_back(
    window: Window, mill: Path, qtbot: QtBot
) -> None:
    whole = mill.read_bytes()
    window.chat.settings = LONG
    window.chat.send(QUESTION)
    qtbot.waitUntil(lambda: len(window.conversation.reply.text) > 5, timeout=LONG_S)
    os.truncate(mill, len(whole) // 8)
    wait_for(window, qtbot, "ready")
    reply = window.conversation.reply
    before = reply.text
    assert before and "mill.gguf" in reply.error
    assert window.chat.session.exchanges[0].state == "failed"
    assert reply.way_out.text() == "Open the model again"

    qtbot.mouseClick(reply.way_out, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "failed")
    assert "mill.gguf" in window.start.sentence.text()
    mill.write_bytes(whole)
    qtbot.mouseClick(window.start.load_button, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "ready")
    assert window.conversation.isVisible() and window.conversation.reply is reply

    qtbot.mouseClick(reply.way_out, Qt.MouseButton.LeftButton)
    assert window.chat.state == "answering"
    wait_for(window, qtbot, "ready")
    again = window.chat.session.exchanges[0]
    assert again.state == "finished" and again.reply.startswith(before)
    window.chat.settings = SHORT
    window.chat.new_chat()
    window.chat.send("And wind mills?")
    wait_for(window, qtbot, "ready")
    assert window.chat.session.exchanges[0].state == "finished"


def test_too_little_memory_is_refused_with_what_helps_and_another_model_opens(
    make_window: MakeWindow, mill: Path, folder: Path, qtbot: QtBot
) -> None:
    window = make_window(partial(load_local, budgets=Budgets(ram=1_000_000)))
    window.chat.load(str(mill))
    wait_for(window, qtbot, "failed")
    assert "at least" in window.start.sentence.text()
    window.start.open_menu.chosen.emit(str(write_tiny_chat(folder / "small.gguf")))
    qtbot.waitUntil(lambda: window.chat.state in ("ready", "failed"), timeout=LONG_S)
    assert window.start.isVisible()
