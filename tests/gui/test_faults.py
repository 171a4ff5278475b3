"""What is not the person's to mend: a sentence for them, the traceback for the log, and a window that goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
from pytestqt.qtbot import QtBot

from app.requests import Report
from engine import Cancel, Event, Message, NumericsError, Settings, Text
from tests.gui.conftest import MakeWindow
from tests.gui.silent_engine import SilentEngine

FAULT = ZeroDivisionError("a fault of ours")


class BaseFault(BaseException):
    """As a panic in a library written in Rust arrives: not an Exception."""


class FailingEngine(SilentEngine):
    """Says a word and fails."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def chat(
        self, messages: Sequence[Message], settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        yield Text("A word")
        raise self._error


@pytest.mark.parametrize("fault", [FAULT, BaseFault("a fault of ours")])
def test_a_fault_while_loading_is_a_plain_sentence_and_a_traceback_in_the_log(
    make_window: MakeWindow, qtbot: QtBot, caplog: pytest.LogCaptureFixture, fault: BaseException
) -> None:
    def load(model: str, report: Report, cancel: Cancel) -> SilentEngine:
        raise fault

    window = make_window(load)
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "failed")
    assert "went wrong" in window.start.sentence.text()
    assert type(fault).__name__ not in window.start.sentence.text()
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert logged[0].exc_info is not None
    assert logged[0].exc_info[1] is fault
    assert window.start.load_button.isVisible()


@pytest.mark.parametrize("fault", [FAULT, BaseFault("a fault of ours")])
def test_a_fault_in_mid_reply_keeps_the_words_and_offers_to_try_again(
    make_window: MakeWindow, qtbot: QtBot, caplog: pytest.LogCaptureFixture, fault: BaseException
) -> None:
    window = make_window(lambda model, report, cancel: FailingEngine(fault))
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    reply = window.conversation.reply
    assert reply is not None
    assert reply.text == "A word"
    assert "went wrong" in reply.error
    assert reply.way_out is not None and reply.way_out.text() == "Try again"
    assert any(record.exc_info and record.exc_info[1] is fault for record in caplog.records)

    reply.way_out.click()
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert [exchange.prompt for exchange in window.chat.session.exchanges] == ["Hello"]
    assert window.conversation.reply is not reply


def test_an_error_that_is_meant_for_the_person_is_shown_word_for_word(make_window: MakeWindow, qtbot: QtBot) -> None:
    sentence = "Layer 3 gave a number that is not finite: the model file is damaged. Fetch it again."
    window = make_window(lambda model, report, cancel: FailingEngine(NumericsError(sentence)))
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert window.conversation.reply is not None
    assert window.conversation.reply.error == sentence


def test_an_engine_that_never_says_that_it_has_finished_is_a_fault(
    make_window: MakeWindow, qtbot: QtBot, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(SilentEngine):
        def chat(
            self, messages: Sequence[Message], settings: Settings | None = None, *, cancel: Cancel | None = None
        ) -> Iterator[Event]:
            yield Text("A word")

    window = make_window(lambda model, report, cancel: Forgetful())
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert window.conversation.reply is not None
    assert "went wrong" in window.conversation.reply.error


def test_an_error_that_the_conversation_has_left_behind_cannot_be_tried_again(
    make_window: MakeWindow, qtbot: QtBot
) -> None:
    """Its button would have withdrawn the newest question instead of its own."""
    window = make_window(lambda model, report, cancel: FailingEngine(FAULT))
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    replies = []
    for text in ("Hello", "Hello again"):
        window.chat.send(text)
        qtbot.waitUntil(lambda: window.chat.state == "ready")
        replies.append(window.conversation.reply)
    assert [reply.way_out.isHidden() for reply in replies] == [True, False]
