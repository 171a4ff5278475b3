"""The whole path in a real window: the real engine on the real starter, in its thread."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.local_engine import load_local
from app.window import Window
from engine import Budgets, Engine, Message, Settings, Text
from tests.gui.conftest import Heartbeat, MakeWindow
from tests.tiny_chat import write_tiny_chat

LONG_S = 60_000
QUESTION = "Tell me about water mills."
SHORT = Settings(max_tokens=48, temperature=0)
LONG = Settings(max_tokens=2000, temperature=0)


@pytest.fixture
def window(make_window: MakeWindow, starter: Path, qtbot: QtBot) -> Window:
    """With the starter loaded."""
    window = make_window()
    window.chat.load("starter")
    wait_for(window, qtbot, "ready")
    return window


def wait_for(window: Window, qtbot: QtBot, state: str) -> None:
    qtbot.waitUntil(lambda: window.chat.state == state, timeout=LONG_S)


def type_and_send(window: Window, qtbot: QtBot, text: str) -> None:
    qtbot.keyClicks(window.composer.draft, text)
    qtbot.keyClick(window.composer.draft, Qt.Key.Key_Return)


def wait_for_text(window: Window, qtbot: QtBot) -> None:
    qtbot.waitUntil(
        lambda: window.conversation.reply is not None and len(window.conversation.reply.text) > 10, timeout=LONG_S
    )


def test_the_window_is_there_before_the_model_and_lives_while_it_loads(
    make_window: MakeWindow, starter: Path, qtbot: QtBot, heartbeat: Heartbeat
) -> None:
    window = make_window()
    assert window.isVisible()
    assert window.chat.state == "no model"
    window.chat.load("starter")
    assert window.chat.state == "loading"
    before = heartbeat.beats
    qtbot.keyClicks(window.composer.draft, "Written meanwhile")
    assert not window.composer.send_button.isEnabled()
    wait_for(window, qtbot, "ready")
    assert heartbeat.beats - before > 10
    assert window.composer.send_button.isEnabled()
    assert window.composer.draft.toPlainText() == "Written meanwhile"


def test_a_message_is_answered_as_the_engine_alone_would_answer_it(
    window: Window, starter: Path, qtbot: QtBot, heartbeat: Heartbeat
) -> None:
    window.chat.settings = SHORT
    lengths: list[int] = []
    before = heartbeat.beats
    type_and_send(window, qtbot, QUESTION)
    assert window.chat.state == "answering"
    assert window.composer.stop_button.isVisible()
    assert not window.composer.send_button.isVisible()
    reply = window.conversation.reply
    assert reply is not None
    reply.body.textChanged.connect(lambda: lengths.append(len(reply.body.toPlainText())))
    wait_for(window, qtbot, "ready")

    with Engine.load(starter) as engine:
        alone = "".join(e.text for e in engine.chat([Message("user", QUESTION)], SHORT) if isinstance(e, Text))
    assert reply.text == alone
    assert reply.body.toPlainText() == alone
    assert len(lengths) > 2, "the reply came in pieces"
    assert lengths == sorted(lengths)
    assert heartbeat.beats - before > 10
    assert window.composer.send_button.isVisible()
    assert not window.composer.stop_button.isVisible()


@pytest.mark.parametrize("how", ["button", "escape"])
def test_stop_keeps_what_there_is_and_the_next_message_works(window: Window, qtbot: QtBot, how: str) -> None:
    window.chat.settings = LONG
    type_and_send(window, qtbot, QUESTION)
    wait_for_text(window, qtbot)
    if how == "button":
        qtbot.mouseClick(window.composer.stop_button, Qt.MouseButton.LeftButton)
    else:
        qtbot.keyClick(window.composer.draft, Qt.Key.Key_Escape)
    wait_for(window, qtbot, "ready")

    exchange = window.chat.session.exchanges[0]
    reply = window.conversation.reply
    assert exchange.state == "stopped"
    assert reply is not None
    partial_text = reply.text
    assert partial_text
    assert exchange.finished is not None
    assert exchange.finished.usage.completion_tokens < LONG.max_tokens
    assert partial_text == exchange.reply
    assert "Stopped" in reply.status

    window.chat.settings = SHORT
    type_and_send(window, qtbot, "Go on.")
    assert window.chat.session.messages()[1] == Message("assistant", partial_text)
    wait_for(window, qtbot, "ready")
    second = window.chat.session.exchanges[1]
    assert second.state == "finished"
    assert second.reply
    assert second.finished is not None
    assert second.finished.usage.cached_tokens > 20, "the first turn was not read again"


def test_a_new_chat_in_mid_reply_begins_empty_and_answers(window: Window, qtbot: QtBot) -> None:
    window.chat.settings = LONG
    type_and_send(window, qtbot, QUESTION)
    wait_for_text(window, qtbot)
    qtbot.mouseClick(window.model_bar.new_chat_button, Qt.MouseButton.LeftButton)
    assert window.conversation.reply is None
    assert window.start.isVisible()
    wait_for(window, qtbot, "ready")
    assert window.chat.session.messages() == ()

    window.chat.settings = SHORT
    type_and_send(window, qtbot, "Hello")
    wait_for(window, qtbot, "ready")
    assert [exchange.prompt for exchange in window.chat.session.exchanges] == ["Hello"]
    assert window.chat.session.exchanges[0].reply


def test_an_example_is_sent_by_a_click(window: Window, qtbot: QtBot) -> None:
    window.chat.settings = SHORT
    example = window.start.examples[0]
    qtbot.mouseClick(example, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "ready")
    assert window.chat.session.exchanges[0].prompt == example.text()
    assert window.conversation.isVisible()


def test_closing_in_mid_reply_ends_the_thread_and_leaves_none_behind(
    make_window: MakeWindow, starter: Path, qtbot: QtBot
) -> None:
    window = make_window()
    before = psutil.Process().num_threads()
    window.chat.load("starter")
    wait_for(window, qtbot, "ready")
    window.chat.settings = LONG
    type_and_send(window, qtbot, QUESTION)
    wait_for_text(window, qtbot)
    assert window.chat.state == "answering"
    window.close()
    assert not window.isVisible()
    assert not window.bridge.running
    qtbot.waitUntil(lambda: psutil.Process().num_threads() <= before)


def test_closing_in_mid_load_ends_the_thread(make_window: MakeWindow, starter: Path, qtbot: QtBot) -> None:
    window = make_window()
    window.chat.load("starter")
    with qtbot.waitSignal(window.bridge.notice, timeout=LONG_S):
        pass
    assert window.chat.state == "loading"
    window.close()
    assert not window.bridge.running


def test_a_load_can_be_cancelled_and_begun_again(make_window: MakeWindow, starter: Path, qtbot: QtBot) -> None:
    window = make_window()
    window.chat.load("starter")
    qtbot.mouseClick(window.start.cancel_button, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "no model")
    assert "model" in window.start.title.text()
    qtbot.mouseClick(window.start.load_button, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "ready")


def test_a_prompt_longer_than_the_context_is_a_sentence_that_leads_to_a_new_chat(
    make_window: MakeWindow, starter: Path, qtbot: QtBot
) -> None:
    window = make_window(partial(load_local, budgets=Budgets(context=64)))
    window.chat.load("starter")
    wait_for(window, qtbot, "ready")
    window.composer.draft.setPlainText("mill " * 200)
    qtbot.mouseClick(window.composer.send_button, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "ready")
    reply = window.conversation.reply
    assert reply is not None
    assert "context holds 64" in reply.error
    assert "Error" not in reply.error
    qtbot.mouseClick(reply.way_out, Qt.MouseButton.LeftButton)
    assert window.conversation.reply is None

    window.chat.settings = Settings(max_tokens=4, temperature=0)
    type_and_send(window, qtbot, "Hi")
    wait_for(window, qtbot, "ready")
    assert window.chat.session.exchanges[0].state == "finished"


def test_a_broken_model_file_is_a_sentence_and_can_be_tried_again(
    make_window: MakeWindow, folder: Path, qtbot: QtBot
) -> None:
    path = write_tiny_chat(folder / "mill.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    window = make_window()
    window.chat.load(str(path))
    wait_for(window, qtbot, "failed")
    sentence = window.start.sentence.text()
    assert "mill.gguf" in sentence
    assert "Traceback" not in sentence
    assert not window.composer.send_button.isVisible() or not window.composer.send_button.isEnabled()

    path.write_bytes(whole)
    qtbot.mouseClick(window.start.load_button, Qt.MouseButton.LeftButton)
    wait_for(window, qtbot, "ready")


def test_a_model_that_does_not_exist_is_a_sentence(make_window: MakeWindow, qtbot: QtBot) -> None:
    window = make_window()
    window.chat.load("no-such-model")
    wait_for(window, qtbot, "failed")
    assert "no-such-model" in window.start.sentence.text()
