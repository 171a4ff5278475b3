"""What is not the person's to mend: a sentence for them, the traceback for the log, and a window that goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
from pytestqt.qtbot import QtBot

from app.requests import Report
from engine import BudgetError, Cancel, Event, Message, ModelFileError, NumericsError, Settings, Text
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


GONE = "Reading tensor blk.7.ffn_up.weight from mill.gguf failed: Input/output error. Check the disk."


class Loader:
    """Gives engines that fail for want of their file, until the disk is `back`."""

    def __init__(self) -> None:
        self.back = False
        self.loads = 0

    def __call__(self, model: str, report: Report, cancel: Cancel) -> SilentEngine:
        self.loads += 1
        if self.loads == 2 and not self.back:
            raise ModelFileError("There is no file mill.gguf.")
        return SilentEngine() if self.back else FailingEngine(ModelFileError(GONE))


def test_a_model_that_is_lost_in_mid_reply_keeps_the_words_and_is_opened_again(
    make_window: MakeWindow, qtbot: QtBot
) -> None:
    loader = Loader()
    window = make_window(loader)
    window.chat.load("mill")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    reply = window.conversation.reply
    assert (reply.text, reply.error) == ("A word", GONE)
    assert reply.way_out.text() == "Open the model again"

    reply.way_out.click()
    qtbot.waitUntil(lambda: window.chat.state == "failed")
    assert window.start.sentence.text() == "There is no file mill.gguf."
    loader.back = True
    window.start.load_button.click()
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert window.conversation.isVisible()
    assert window.conversation.reply is reply and reply.text == "A word"
    assert reply.way_out.text() == "Try again"

    reply.way_out.click()
    assert window.chat.state == "answering"
    assert [exchange.prompt for exchange in window.chat.session.exchanges] == ["Hello"]


def test_the_chat_goes_on_without_the_model_being_opened_again(make_window: MakeWindow, qtbot: QtBot) -> None:
    """The disk may have been away for a moment only."""
    window = make_window(lambda model, report, cancel: FailingEngine(ModelFileError(GONE)))
    window.chat.load("mill")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    for text in ("Hello", "Hello again"):
        window.chat.send(text)
        qtbot.waitUntil(lambda: window.chat.state == "ready")
    told = [(message.role, message.content) for message in window.chat.session.messages()]
    assert told == [("user", "Hello"), ("assistant", "A word"), ("user", "Hello again"), ("assistant", "A word")]


def test_memory_that_is_refused_is_told_with_its_remedy_and_another_model_can_be_opened(
    make_window: MakeWindow, qtbot: QtBot
) -> None:
    sentence = "Mill 30B needs at least 812.0 MB of memory, but 64.0 MB is granted: grant it more, or choose q8_0."

    def load(model: str, report: Report, cancel: Cancel) -> SilentEngine:
        if model == "large":
            raise BudgetError(sentence)
        return SilentEngine()

    window = make_window(load)
    window.chat.load("large")
    qtbot.waitUntil(lambda: window.chat.state == "failed")
    assert window.start.sentence.text() == sentence
    assert window.start.load_button.isVisible() and window.start.open_button.isVisible()
    window.start.open_menu.chosen.emit("small")
    qtbot.waitUntil(lambda: window.chat.state == "ready")


def test_memory_that_the_system_refuses_is_told_as_such(make_window: MakeWindow, qtbot: QtBot) -> None:
    window = make_window(lambda model, report, cancel: FailingEngine(MemoryError()))
    window.chat.load("any")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert "refused the memory" in window.conversation.reply.error
    assert window.conversation.reply.text == "A word"
