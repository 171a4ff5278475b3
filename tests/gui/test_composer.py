"""Writing a message: what sends it, when it may be sent, and how the field grows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.composer import MOST_LINES, Composer
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
    composer.sent.connect(texts.append)
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
