"""The conversation pane: what it follows, what it redraws, what can be selected and copied."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextOption
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.conversation import Conversation
from app.look import Appearance
from app.message_view import SHOWN_AT_FIRST, SHOWN_MORE, MessageView

PARAGRAPH = "The mill stands where the stream is narrow, and its wheel turns day and night.\n"


@pytest.fixture
def pane(qtbot: QtBot, appearance: Appearance) -> Conversation:
    """Shown, with one exchange."""
    pane = Conversation(appearance.look)
    qtbot.addWidget(pane)
    pane.resize(600, 400)
    pane.show()
    qtbot.waitExposed(pane)
    pane.add_exchange("Tell me about mills.", "Model")
    return pane


def stream(pane: Conversation, qtbot: QtBot, text: str) -> None:
    reply = pane.reply
    assert reply is not None
    whole = reply.text + text
    reply.stream(text)
    qtbot.waitUntil(lambda: reply.text == whole)
    settle(pane, qtbot)


def settle(pane: Conversation, qtbot: QtBot) -> None:
    """Let the event loop run until all the text has its place, and the scroll bar knows of it."""
    assert pane.reply is not None
    places: list[tuple[int, ...]] = []
    while len(places) < 5 or len(set(places[-5:])) > 1:
        qtbot.wait(5)
        bar = pane.verticalScrollBar()
        places.append((pane.reply.body.height(), pane.widget().height(), bar.maximum(), bar.value()))


def at_end(pane: Conversation) -> bool:
    return pane.verticalScrollBar().value() == pane.verticalScrollBar().maximum()


def wheel(pane: Conversation, notches: int) -> None:
    """Turn the wheel over the text, as a reader would."""
    QTest.wheelEvent(pane.windowHandle(), QPointF(200, 200), QPoint(0, 120 * notches))


def test_it_follows_the_newest_text_while_the_reader_is_at_the_end(pane: Conversation, qtbot: QtBot) -> None:
    for _ in range(8):
        stream(pane, qtbot, PARAGRAPH * 5)
        assert at_end(pane)
    assert pane.verticalScrollBar().maximum() > 400
    assert pane.newest_button.isHidden()


def test_a_scroll_upwards_lets_go_and_the_button_leads_back(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 40)
    wheel(pane, 1)
    held = pane.verticalScrollBar().value()
    assert held < pane.verticalScrollBar().maximum()
    for _ in range(4):
        stream(pane, qtbot, PARAGRAPH * 5)
        assert pane.verticalScrollBar().value() == held
    assert pane.newest_button.isVisible()

    qtbot.mouseClick(pane.newest_button, Qt.MouseButton.LeftButton)
    assert at_end(pane)
    assert pane.newest_button.isHidden()
    stream(pane, qtbot, PARAGRAPH * 5)
    assert at_end(pane)


def test_the_smallest_scroll_upwards_is_enough(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 40)
    bar = pane.verticalScrollBar()
    bar.setValue(bar.maximum() - 1)
    held = bar.value()
    stream(pane, qtbot, PARAGRAPH * 5)
    assert bar.value() == held


def test_scrolling_back_to_the_end_follows_again(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 40)
    wheel(pane, 3)
    assert not pane.following
    wheel(pane, -20)
    assert pane.following
    stream(pane, qtbot, PARAGRAPH * 5)
    assert at_end(pane)


def test_a_new_question_leads_to_the_end(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 40)
    wheel(pane, 5)
    pane.add_exchange("And rivers?", "Model")
    qtbot.waitUntil(lambda: at_end(pane))
    assert pane.following


def test_only_the_newest_message_is_written_to(pane: Conversation, qtbot: QtBot) -> None:
    first = pane.reply
    assert first is not None
    stream(pane, qtbot, PARAGRAPH)
    changes: list[int] = []
    first.body.document().contentsChange.connect(lambda *change: changes.append(1))
    pane.add_exchange("And rivers?", "Model")
    stream(pane, qtbot, PARAGRAPH)
    assert changes == []


def test_a_piece_is_appended_and_what_was_there_is_not_laid_out_again(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 30)
    reply = pane.reply
    assert reply is not None
    changes: list[tuple[int, int, int]] = []
    reply.body.document().contentsChange.connect(lambda *change: changes.append(change))
    before = len(reply.text)
    stream(pane, qtbot, "one more word")
    assert all(position >= before and removed == 0 for position, removed, _ in changes)
    assert changes


def test_many_pieces_are_few_redraws_and_none_is_lost(pane: Conversation, qtbot: QtBot) -> None:
    reply = pane.reply
    assert reply is not None
    redraws: list[int] = []
    reply.body.textChanged.connect(lambda: redraws.append(1))
    pieces = [f"word{n} " for n in range(500)]
    for piece in pieces:
        reply.stream(piece)
    qtbot.waitUntil(lambda: reply.text == "".join(pieces))
    assert reply.body.toPlainText() == "".join(pieces)
    assert len(redraws) < 50


def test_nothing_is_drawn_while_hidden_and_all_of_it_when_shown_again(pane: Conversation, qtbot: QtBot) -> None:
    reply = pane.reply
    assert reply is not None
    pane.hide()
    redraws: list[int] = []
    reply.body.textChanged.connect(lambda: redraws.append(1))
    for _ in range(3):
        reply.stream("hidden ")
        qtbot.wait(60)
    assert redraws == []
    pane.show()
    assert reply.text == "hidden hidden hidden "


def test_the_end_of_a_reply_shows_what_was_still_waiting(pane: Conversation) -> None:
    reply = pane.reply
    assert reply is not None
    reply.stream("one ")
    reply.stream("two")
    reply.finish("2 tokens")
    assert reply.text == "one two"
    assert reply.status == "2 tokens"


def test_a_selection_up_to_the_end_does_not_grow_with_the_text(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, "one two")
    reply = pane.reply
    assert reply is not None
    selection = reply.body.textCursor()
    selection.movePosition(QTextCursor.MoveOperation.Start)
    selection.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
    reply.body.setTextCursor(selection)
    stream(pane, qtbot, " three")
    assert reply.body.textCursor().selectedText() == "one two"


def test_text_is_selected_and_copied_by_keyboard(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, "one two three")
    reply = pane.reply
    assert reply is not None
    reply.body.setFocus()
    qtbot.keyClick(reply.body, Qt.Key.Key_Home)
    for _ in range(2):
        qtbot.keyClick(
            reply.body, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier
        )
    qtbot.keyClick(reply.body, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "one two "
    qtbot.keyClick(reply.body, Qt.Key.Key_X)
    assert reply.text == "one two three"


@pytest.mark.parametrize("text", ["one\n\n  two\tthree", "<b>not bold</b> & 山 é 🌊", "ends\n"])
def test_copy_gives_the_text_as_the_model_wrote_it(pane: Conversation, qtbot: QtBot, text: str) -> None:
    stream(pane, qtbot, text)
    reply = pane.reply
    assert reply is not None
    qtbot.mouseClick(reply.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == text
    assert reply.copy_button.toolTip() == "Copied"
    assert reply.body.toPlainText() == text


def test_all_of_a_long_text_is_in_sight_at_any_width(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 20 + "w" * 500)
    reply = pane.reply
    assert reply is not None
    for width in (500, 900, 420):
        pane.resize(width, 400)
        settle(pane, qtbot)
        document = reply.body.document()
        assert reply.body.viewport().height() >= document.size().height()
        assert document.idealWidth() <= reply.body.viewport().width()
        assert pane.horizontalScrollBar().maximum() == 0


def test_a_cleared_conversation_is_empty(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, PARAGRAPH * 40)
    wheel(pane, 5)
    pane.clear()
    assert pane.reply is None
    qtbot.waitUntil(lambda: pane.verticalScrollBar().maximum() == 0)
    assert pane.following


def test_a_huge_question_is_shown_by_pieces_and_copied_whole(pane: Conversation, qtbot: QtBot) -> None:
    text = "a" * 30_000
    pane.add_exchange(text, "Model")
    asked = pane.findChildren(MessageView)[-2]
    assert asked.text == text
    qtbot.waitUntil(asked.more_button.isVisible)
    shown = [len(asked.body.toPlainText())]
    while asked.more_button.isVisible():
        qtbot.mouseClick(asked.more_button, Qt.MouseButton.LeftButton)
        shown.append(len(asked.body.toPlainText()))
    assert shown == [SHOWN_AT_FIRST, SHOWN_AT_FIRST + SHOWN_MORE, 30_000]
    qtbot.mouseClick(asked.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == text


def test_an_ordinary_question_is_shown_whole(pane: Conversation) -> None:
    asked = pane.findChildren(MessageView)[0]
    assert asked.body.toPlainText() == "Tell me about mills."
    assert asked.more_button.isHidden()


def test_words_wrap_as_words_until_one_has_no_end(pane: Conversation, qtbot: QtBot) -> None:
    stream(pane, qtbot, "mill " * 1000 + "山水" * 2000)
    reply = pane.reply
    assert reply is not None
    assert reply.body.wordWrapMode() == QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere
    for _ in range(3):
        stream(pane, qtbot, "A" * 400)
    assert reply.body.wordWrapMode() == QTextOption.WrapMode.WrapAnywhere
