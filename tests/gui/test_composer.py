"""Writing a message: what sends it, when it may be sent, and how the field grows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QGuiApplication, QTextCursor
from pytestqt.qtbot import QtBot

from app.composer import Composer
from app.draft import LONGEST_BLOCK, MOST_LINES
from app.look import Appearance

SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qtbot: QtBot, appearance: Appearance) -> Composer:
    """Shown, with a model that is ready."""
    composer = Composer(appearance.look)
    qtbot.addWidget(composer)
    composer.resize(700, 300)
    composer.show()
    qtbot.waitExposed(composer)
    composer.set_ready(True)
    return composer


def sent(composer: Composer) -> list[str]:
    texts: list[str] = []
    composer.sent.connect(lambda text, pictures: texts.append(text))
    return texts


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_enter_sends_and_empties_the_field(composer: Composer, qtbot: QtBot, key: Qt.Key) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.draft, "  Hello mill ")
    qtbot.keyClick(composer.draft, key)
    assert texts == ["Hello mill"]
    assert composer.draft.toPlainText() == ""


def test_shift_enter_breaks_the_line(composer: Composer, qtbot: QtBot) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.draft, "one")
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return, SHIFT)
    qtbot.keyClicks(composer.draft, "two")
    assert texts == []
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert texts == ["one\ntwo"]


def test_the_button_sends(composer: Composer, qtbot: QtBot) -> None:
    texts = sent(composer)
    qtbot.keyClicks(composer.draft, "Hello")
    qtbot.mouseClick(composer.send_button, Qt.MouseButton.LeftButton)
    assert texts == ["Hello"]


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_is_not_sent(composer: Composer, qtbot: QtBot, text: str) -> None:
    texts = sent(composer)
    composer.draft.setPlainText(text)
    assert not composer.send_button.isEnabled()
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert texts == []


def test_without_a_model_the_message_stays_in_the_field(composer: Composer, qtbot: QtBot) -> None:
    composer.set_ready(False)
    texts = sent(composer)
    qtbot.keyClicks(composer.draft, "Hello")
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert texts == []
    assert composer.draft.toPlainText() == "Hello"
    assert not composer.send_button.isEnabled()
    composer.set_ready(True)
    assert composer.send_button.isEnabled()


def test_while_a_reply_is_made_there_is_stop_in_place_of_send(composer: Composer, qtbot: QtBot) -> None:
    texts = sent(composer)
    composer.set_busy(True)
    assert composer.stop_button.isVisible()
    assert not composer.send_button.isVisible()
    qtbot.keyClicks(composer.draft, "The next one")
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert texts == []
    with qtbot.waitSignal(composer.stopped):
        qtbot.mouseClick(composer.stop_button, Qt.MouseButton.LeftButton)
    composer.set_busy(False)
    assert composer.send_button.isVisible()
    assert composer.draft.toPlainText() == "The next one"


def test_the_field_grows_with_the_text_up_to_eight_lines_and_then_scrolls(composer: Composer, qtbot: QtBot) -> None:
    heights = []
    for lines in range(1, MOST_LINES + 3):
        composer.draft.setPlainText("\n".join(["mill"] * lines))
        heights.append(composer.draft.height())
    steps = [after - before for before, after in pairwise(heights)]
    assert all(step > 10 for step in steps[: MOST_LINES - 1])
    assert steps[MOST_LINES - 1 :] == [0, 0]
    assert composer.draft.verticalScrollBar().maximum() > 0
    composer.draft.clear()
    assert composer.draft.height() == heights[0]


@pytest.mark.parametrize("lines", range(1, MOST_LINES + 1))
def test_up_to_eight_lines_are_all_in_sight(composer: Composer, qtbot: QtBot, lines: int) -> None:
    composer.draft.setPlainText("\n".join(["mill"] * lines))
    qtbot.wait(1)
    assert composer.draft.verticalScrollBar().maximum() == 0


def test_a_long_line_that_wraps_counts_as_the_lines_it_takes(composer: Composer) -> None:
    one = composer.draft.height()
    composer.draft.setPlainText("mill " * 60)
    assert composer.draft.height() > one


def test_a_context_that_is_nearly_full_is_said_in_words(composer: Composer) -> None:
    composer.show_context(1000, 8192)
    assert composer.context == "Context 12 %"
    composer.show_context(7000, 8192)
    assert composer.context == "Context nearly full: 85 %"
    composer.show_context(0, 8192)
    assert composer.context == ""


HUGE = {
    "a word without end": "a" * 300_000,
    "a paragraph without end": "the mill stream turns " * 15_000,
    "long paragraphs": ("mill 🌊 山 " * 900 + "\n\n") * 20,
}


def longest_block(composer: Composer) -> int:
    document = composer.draft.document()
    return max(document.findBlockByNumber(n).length() for n in range(document.blockCount()))


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE.keys())
def test_a_huge_text_is_laid_out_in_short_blocks_and_sent_as_it_was_given(composer: Composer, text: str) -> None:
    texts = sent(composer)
    composer.draft.setPlainText(text)
    assert longest_block(composer) <= 2 * LONGEST_BLOCK  # in UTF-16
    assert composer.draft.toPlainText() == text
    composer.send_button.click()
    assert texts == [text.strip()]
    assert composer.draft.toPlainText() == ""


def test_a_key_in_a_huge_text_changes_one_short_block(composer: Composer, qtbot: QtBot) -> None:
    composer.draft.setPlainText("a" * 300_000)
    changes: list[tuple[int, int, int]] = []
    composer.draft.document().contentsChange.connect(lambda *change: changes.append(change))
    composer.draft.moveCursor(QTextCursor.MoveOperation.End)
    qtbot.keyClick(composer.draft, Qt.Key.Key_B)
    assert [change[1:] for change in changes] == [(0, 1)]
    assert composer.draft.toPlainText() == "a" * 300_000 + "b"


def test_a_huge_text_is_pasted_copied_and_undone_like_any_other(composer: Composer, qtbot: QtBot) -> None:
    text = "🌊" * 3000 + "\r\nmill " * 900
    qtbot.keyClicks(composer.draft, "before")
    QGuiApplication.clipboard().setText(text)
    composer.draft.paste()
    whole = "before" + text.replace("\r\n", "\n")
    assert composer.draft.toPlainText() == whole
    composer.draft.selectAll()
    composer.draft.copy()
    assert QGuiApplication.clipboard().text() == whole
    composer.draft.undo()
    assert composer.draft.toPlainText() == "before"
    composer.draft.redo()
    assert composer.draft.toPlainText() == whole


def test_part_of_a_huge_text_is_copied_to_the_letter(composer: Composer) -> None:
    text = "🌊" + "ab" * LONGEST_BLOCK + "\nmill"
    composer.draft.setPlainText(text)
    cursor = composer.draft.textCursor()
    seams = composer.draft.document().blockCount() - text.count("\n") - 1
    assert seams == 2
    cursor.setPosition(2)
    last = composer.draft.document().lastBlock().position()
    cursor.setPosition(last + 2, QTextCursor.MoveMode.KeepAnchor)
    composer.draft.setTextCursor(cursor)
    composer.draft.copy()
    assert QGuiApplication.clipboard().text() == text[1:-2]


def test_a_line_break_after_a_seam_is_a_line_break(composer: Composer, qtbot: QtBot) -> None:
    composer.draft.setPlainText("a" * (LONGEST_BLOCK + 10))
    composer.draft.moveCursor(QTextCursor.MoveOperation.End)
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return, SHIFT)
    qtbot.keyClicks(composer.draft, "b")
    composer.draft.insertPlainText("\nc\nd")
    assert composer.draft.toPlainText() == "a" * (LONGEST_BLOCK + 10) + "\nb\nc\nd"


@pytest.mark.parametrize("empty", ["clear", "delete", "send"])
def test_once_a_huge_text_is_gone_all_has_its_place_again(composer: Composer, qtbot: QtBot, empty: str) -> None:
    def places() -> list[QRect]:
        qtbot.wait(20)
        return [composer.send_button.geometry(), composer.draft.geometry(), composer.draft.viewport().geometry()]

    before = places()
    composer.draft.setPlainText("a" * 300_000)
    assert composer.draft.height() > before[1].height()
    qtbot.wait(20)
    if empty == "clear":
        composer.draft.clear()
    elif empty == "delete":
        composer.draft.selectAll()
        qtbot.keyClick(composer.draft, Qt.Key.Key_Delete)
    else:
        qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
        composer.set_busy(True)
        qtbot.wait(20)
        composer.set_busy(False)
    assert places() == before


def test_enter_during_a_reply_says_why_nothing_is_sent(composer: Composer, qtbot: QtBot) -> None:
    composer.show_context(1000, 8192)
    composer.set_busy(True)
    height = composer.sizeHint().height()
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert composer.hint == ""
    qtbot.keyClicks(composer.draft, "Next")
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert composer.hint == "The reply is still being written; Esc stops it."
    assert composer.sizeHint().height() == height
    composer.set_busy(False)
    assert composer.hint == ""
    assert composer.draft.toPlainText() == "Next"


def test_the_buttons_take_turns_in_one_place_without_a_pass_that_has_both(composer: Composer, qtbot: QtBot) -> None:
    qtbot.wait(20)
    before = [composer.send_button.geometry(), composer.draft.geometry()]
    composer.set_busy(True)
    assert [composer.stop_button.geometry(), composer.draft.geometry()] == before
    composer.set_busy(False)
    assert [composer.send_button.geometry(), composer.draft.geometry()] == before
