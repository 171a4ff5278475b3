"""What a reply is made of besides its text: reasoning that unfolds, and calls of tools."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.look import Appearance
from app.reply_view import ReplyView
from app.requests import Answer
from app.thoughts import SHOWN_AT_ONCE
from app.window import Window
from engine import Event, Finished, Reasoning, Text, Timings, ToolCall, Usage
from tests.gui.conftest import MakeWindow
from tests.gui.silent_engine import load_silent


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reply(qtbot: QtBot, appearance: Appearance, clock: Clock) -> ReplyView:
    view = ReplyView("Model", appearance.look, clock)
    qtbot.addWidget(view)
    view.resize(600, 400)
    view.show()
    qtbot.waitExposed(view)
    return view


@pytest.fixture
def window(make_window: MakeWindow, qtbot: QtBot) -> Window:
    """Over an engine that says nothing, with a question asked."""
    window = make_window(load_silent)
    window.chat.load("silent")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("What is a mill?")
    return window


def say(window: Window, event: Event) -> None:
    window.bridge.notice.emit(Answer(window.chat.session.last_request_id, event))


def finished(*, in_reasoning: bool = False) -> Finished:
    return Finished("stop", Usage(3, 0, 2), Timings(0.1, 0.1, 0.1, 30.0, 20.0), in_reasoning)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "Thought for a moment"), (4.2, "Thought for 4 s"), (125, "Thought for 2 min 5 s")],
)
def test_a_line_says_that_the_model_thinks_and_then_for_how_long_it_did(
    reply: ReplyView, clock: Clock, seconds: float, said: str
) -> None:
    reply.think("Let me see.")
    assert reply.thoughts.header.isVisible()
    assert reply.thoughts.header.text() == "Thinking…"
    assert not reply.thoughts.pane.isVisible()
    clock.now += seconds
    reply.stream("A mill.")
    assert reply.thoughts.header.text() == said
    clock.now += 50
    reply.finish("2 tokens")
    assert reply.thoughts.header.text() == said
    assert reply.text == "A mill."


def test_the_time_is_that_of_thinking_even_while_nobody_sees_it(reply: ReplyView, clock: Clock) -> None:
    reply.hide()
    for piece, seconds in (("one", 2), ("two", 3)):
        reply.think(piece)
        clock.now += seconds
        reply.stream("said ")
        clock.now += 100
    reply.show()
    assert reply.thoughts.header.text() == "Thought for 5 s"
    assert reply.thoughts.text == "one\n\ntwo"


def test_the_reasoning_unfolds_while_it_lasts_and_grows(reply: ReplyView, qtbot: QtBot) -> None:
    reply.think("Let me ")
    qtbot.mouseClick(reply.thoughts.header, Qt.MouseButton.LeftButton)
    assert reply.thoughts.pane.isVisible()
    assert reply.thoughts.pane.toPlainText() == "Let me "
    reply.think("see.")
    qtbot.waitUntil(lambda: reply.thoughts.pane.toPlainText() == "Let me see.")
    qtbot.mouseClick(reply.thoughts.header, Qt.MouseButton.LeftButton)
    assert not reply.thoughts.pane.isVisible()


def test_long_reasoning_unfolds_by_pieces_until_all_of_it_is_there(reply: ReplyView, qtbot: QtBot) -> None:
    thought = "The mill stands by the stream. " * 2000
    reply.think(thought)
    reply.finish("2 tokens")
    assert reply.thoughts.pane.toPlainText() == ""
    reply.thoughts.header.click()
    assert len(reply.thoughts.pane.toPlainText()) == SHOWN_AT_ONCE
    qtbot.waitUntil(lambda: reply.thoughts.pane.toPlainText() == thought)


def test_a_reply_that_ended_inside_its_reasoning_says_so_and_can_be_read(window: Window, qtbot: QtBot) -> None:
    say(window, Reasoning("Let me see"))
    say(window, finished(in_reasoning=True))
    reply = window.conversation.reply
    assert reply.status.startswith("Ended inside its reasoning, without an answer")
    assert reply.thoughts.header.text() == "Thought for a moment"
    assert not reply.activity.isVisible()
    qtbot.mouseClick(reply.thoughts.header, Qt.MouseButton.LeftButton)
    assert reply.thoughts.pane.toPlainText() == "Let me see"
    assert not reply.copy_button.isEnabled()
    window.chat.send("And now?")
    assert [message.content for message in window.chat.session.messages()] == ["And now?"]


def test_what_unfolds_stays_under_the_eyes_of_the_reader(window: Window, qtbot: QtBot) -> None:
    say(window, Reasoning("The mill stands by the stream.\n" * 100))
    say(window, Text("A mill."))
    say(window, finished())
    reply = window.conversation.reply
    assert window.conversation.following
    reply.thoughts.header.click()
    qtbot.waitUntil(lambda: window.conversation.verticalScrollBar().maximum() > 500)
    assert window.conversation.verticalScrollBar().value() == 0
    assert not window.conversation.following
    assert window.conversation.newest_button.isVisible()
    reply.thoughts.header.click()
    qtbot.waitUntil(lambda: window.conversation.following)
    assert window.conversation.newest_button.isHidden()


def test_a_little_that_unfolds_does_not_keep_the_reply_from_being_followed(window: Window, qtbot: QtBot) -> None:
    say(window, Reasoning("Let me see"))
    reply = window.conversation.reply
    reply.thoughts.header.click()
    qtbot.wait(50)
    assert window.conversation.following


def test_calls_are_shown_in_their_order_by_name_and_arguments(window: Window, qtbot: QtBot) -> None:
    say(window, Text("I will look."))
    say(window, ToolCall("river_level", '{"place": "Millbrook", "days": 3, "deep": {"a": [1]}}'))
    say(window, ToolCall("python", '{"code": "a = 1\\nprint(a)"}'))
    say(window, ToolCall("list_files", "{}"))
    say(window, finished())
    reply = window.conversation.reply
    assert [call.body.accessibleName() for call in reply.calls] == [
        f"The model asks for the tool {name}" for name in ("river_level", "python", "list_files")
    ]
    assert [call.body.toPlainText() for call in reply.calls] == [
        'place: Millbrook\ndays: 3\ndeep: {"a": [1]}',
        "code:\na = 1\nprint(a)",
        "",
    ]
    qtbot.wait(20)
    tops = [call.mapTo(reply, call.rect().topLeft()).y() for call in reply.calls]
    assert tops == sorted(tops)
    assert reply.body.geometry().bottom() <= tops[0]
    assert [call.body.isVisible() for call in reply.calls] == [True, True, False]


def test_the_arguments_of_a_call_may_be_a_whole_file(window: Window, qtbot: QtBot) -> None:
    say(window, ToolCall("write_file" * 40, '{"text": "' + "a" * 300_000 + '"}'))
    qtbot.wait(20)
    view = window.conversation.reply.calls[0]
    assert len(view.body.toPlainText()) < 5000
    assert view.body.toPlainText().endswith("…")
    assert view.width() <= window.conversation.reply.width()


def test_a_call_ends_the_thinking_and_the_wait(window: Window) -> None:
    say(window, Reasoning("I need the level."))
    say(window, ToolCall("river_level", "{}"))
    reply = window.conversation.reply
    assert reply.thoughts.header.text() == "Thought for a moment"
    assert not reply.activity.isVisible()


def test_tab_goes_to_the_reasoning_and_the_calls_as_they_are_read(window: Window, qtbot: QtBot) -> None:
    say(window, Reasoning("Let me see"))
    say(window, Text("I will look."))
    for place in ("here", "there"):
        say(window, ToolCall("river_level", f'{{"place": "{place}"}}'))
    reply = window.conversation.reply
    reply.thoughts.header.click()
    qtbot.waitUntil(lambda: all(call.body.isVisible() for call in reply.calls))
    window.activateWindow()
    reply.thoughts.header.setFocus()
    qtbot.waitUntil(reply.thoughts.header.hasFocus)
    reached = []
    for _ in range(6):
        reached.append(QApplication.focusWidget())
        qtbot.keyClick(reached[-1], Qt.Key.Key_Tab)
    calls = [call.body for call in reply.calls]
    assert reached == [reply.thoughts.header, reply.thoughts.pane, reply.body, *calls, reply.copy_button]


def test_the_copy_of_a_reply_is_its_answer_alone(window: Window) -> None:
    say(window, Reasoning("Let me see"))
    say(window, Text("A mill."))
    say(window, finished())
    window.conversation.reply.copy_button.click()
    assert QGuiApplication.clipboard().text() == "A mill."
