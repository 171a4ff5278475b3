"""The window itself: its place, its looks, its names, its shortcuts, and that it rests when nothing happens."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect, QSettings, Qt, QTimer
from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLabel,
    QPlainTextEdit,
    QProgressBar,
    QScrollArea,
    QTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.elided_label import ElidedLabel
from app.look import Appearance
from app.message_view import MessageView
from app.model_bar import ModelBar
from app.requests import Answer, AnswerFailed, Fetching
from app.theme import load_theme
from app.window import Window
from engine import Finished, PrefillProgress, Text, Timings, Usage
from tests.gui.conftest import MakeWindow
from tests.gui.silent_engine import load_silent


@pytest.fixture
def window(make_window: MakeWindow, qtbot: QtBot) -> Window:
    """Ready, over an engine that says nothing."""
    window = make_window(load_silent)
    window.chat.load("silent")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    return window


def say(window: Window, event: object) -> None:
    window.bridge.notice.emit(Answer(window.chat.session.last_request_id, event))


def test_it_remembers_its_size_and_its_place(make_window: MakeWindow) -> None:
    first = make_window(load_silent)
    first.setGeometry(QRect(40, 60, 733, 555))
    first.close()
    second = make_window(load_silent)
    assert second.geometry() == QRect(40, 60, 733, 555)


def test_settings_that_make_no_sense_do_not_keep_it_from_opening(make_window: MakeWindow, folder: object) -> None:
    settings = QSettings(str(folder / "window.ini"), QSettings.Format.IniFormat)
    settings.setValue("window/geometry", "nonsense")
    settings.sync()
    window = make_window(load_silent)
    assert window.isVisible()
    assert window.width() >= window.minimumWidth()


def test_light_and_dark_follow_the_system(window: Window, qapp: QApplication, appearance: Appearance) -> None:
    hints = qapp.styleHints()
    for scheme, name in ((Qt.ColorScheme.Dark, "dark"), (Qt.ColorScheme.Light, "light")):
        hints.colorSchemeChanged.emit(scheme)
        theme = load_theme(name)
        assert appearance.look.theme == theme
        assert qapp.palette().color(QPalette.ColorRole.Window) == QColor(theme.surface)
        corner = window.grab().toImage().pixelColor(window.width() - 2, window.height() - 2)
        assert corner == QColor(theme.surface)


def test_every_control_has_a_name(window: Window, qtbot: QtBot) -> None:
    window.chat.send("Hello")
    say(window, Text("A mill."))
    window.bridge.notice.emit(AnswerFailed(window.chat.session.last_request_id, "It failed."))
    controls = [
        widget
        for kind in (QAbstractButton, QPlainTextEdit, QTextEdit, QProgressBar)
        for widget in window.findChildren(kind)
    ]
    assert len(controls) > 10
    nameless = [
        widget
        for widget in controls
        if not widget.accessibleName() and not (isinstance(widget, QAbstractButton) and widget.text())
    ]
    assert nameless == []
    assert window.conversation.accessibleName()


def test_tab_goes_through_every_control_as_it_is_read_and_comes_back(window: Window, qtbot: QtBot) -> None:
    window.chat.send("Hello")
    say(window, Text("A mill."))
    qtbot.waitUntil(lambda: window.conversation.reply.body.isVisible())
    window.model_bar.new_chat_button.setFocus()
    reached: list[QWidget] = []
    while (at := QApplication.focusWidget()) not in reached:
        reached.append(at)
        qtbot.keyClick(at, Qt.Key.Key_Tab)
    assert at is reached[0]
    asked, reply = window.conversation.findChildren(MessageView)
    assert reached == [
        window.model_bar.new_chat_button,
        window.model_bar.library_button,
        window.model_bar.models_button,
        window.model_bar.fit_button,
        window.conversation,
        asked.body,
        asked.copy_button,
        reply.body,
        reply.copy_button,
        window.composer.attach_button,
        window.composer.draft,
        window.composer.stop_button,
    ]


@pytest.mark.parametrize("name", ["send_button", "stop_button"])
def test_a_button_that_goes_away_leaves_the_focus_to_the_field(window: Window, qtbot: QtBot, name: str) -> None:
    window.composer.draft.setPlainText("Hello")
    if name == "stop_button":
        window.composer.send_button.click()
    button = getattr(window.composer, name)
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert window.composer.draft.hasFocus()


def test_nothing_ticks_while_nothing_happens(window: Window, qtbot: QtBot) -> None:
    window.chat.send("Hello")
    say(window, Text("A mill."))
    say(window, Finished("stop", Usage(3, 0, 2), Timings(0.1, 0.1, 0.1, 30.0, 20.0)))
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    qtbot.wait(100)
    assert [timer for timer in window.findChildren(QTimer) if timer.isActive()] == []


def test_a_short_wait_for_the_first_word_is_not_spoken_of_and_a_long_one_is(window: Window, qtbot: QtBot) -> None:
    window.chat.send("Hello")
    say(window, PrefillProgress(512, 2048, 0))
    reply = window.conversation.reply
    assert not reply.activity.isVisible()
    qtbot.waitUntil(lambda: reply.activity.isVisible())
    assert "25 %" in reply.activity.text
    say(window, Text("A mill."))
    assert not reply.activity.isVisible()
    assert reply.text == "A mill."


def test_progress_of_fetching_is_shown_and_can_be_cancelled(make_window: MakeWindow, qtbot: QtBot) -> None:
    window = make_window(load_silent)
    window.chat.load("wait")
    window.bridge.notice.emit(Fetching("Fetching the starter model", 50_000_000_000, 200_000_000_000))
    assert window.chat.state == "fetching"
    assert window.start.bar.value() * 4 == window.start.bar.maximum()
    assert "25 %" in window.start.figures.text()
    qtbot.mouseClick(window.start.cancel_button, Qt.MouseButton.LeftButton)
    assert not window.start.cancel_button.isEnabled()
    qtbot.waitUntil(lambda: window.chat.state == "no model")
    assert window.start.load_button.isVisible()


def test_after_a_cancelled_load_the_next_one_can_be_cancelled_too(make_window: MakeWindow, qtbot: QtBot) -> None:
    window = make_window(load_silent)
    for _ in range(2):
        window.chat.load("wait")
        qtbot.mouseClick(window.start.cancel_button, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: window.chat.state == "no model")


def test_control_n_begins_a_new_chat(window: Window, qtbot: QtBot) -> None:
    window.chat.send("Hello")
    assert window.conversation.isVisible()
    qtbot.keyClick(window.composer.draft, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
    assert window.start.isVisible()
    assert window.composer.draft.hasFocus()


@pytest.mark.parametrize("width", [420, 640, 900, 1400])
def test_nothing_sticks_out_at_any_width(window: Window, qtbot: QtBot, width: int) -> None:
    window.chat.send("Hello " * 50)
    say(window, Text("mill" * 200))
    window.resize(width, 600)
    qtbot.wait(50)
    assert window.width() == width
    for widget in window.findChildren(QWidget):
        if widget.isVisible() and widget.parentWidget() is not None and not isinstance(widget.window(), QScrollArea):
            left = widget.mapTo(window, widget.rect().topLeft()).x()
            assert left >= 0, widget
            assert left + widget.width() <= width, widget
    assert window.conversation.reply.body.width() <= 760


def gauges(bar: ModelBar) -> list[str]:
    """Those in sight, each of which must have room for all that it says, with no event in between."""
    shown = [label for label in bar.findChildren(QLabel) if label.isVisible() and not isinstance(label, ElidedLabel)]
    assert all(label.width() >= label.sizeHint().width() for label in shown)
    assert all(label.geometry().right() < bar.width() for label in shown)
    return [label.text() for label in shown]


@pytest.mark.parametrize("width", [420, 480, 560, 640, 960])
def test_a_speed_is_shown_whole_at_any_width(window: Window, width: int) -> None:
    window.resize(width, 600)
    window.model_bar.end_reply(100.7)
    assert "100.7 tok/s" in gauges(window.model_bar)


def test_without_room_the_memory_goes_first_and_then_the_speed(qtbot: QtBot, appearance: Appearance) -> None:
    bar = ModelBar(appearance.look)
    qtbot.addWidget(bar)
    bar.setMinimumWidth(1)
    bar.resize(900, 52)
    bar.show()
    bar.show_no_model("A model with a long name that gives way")
    bar.end_reply(100.7)
    counts = []
    for width in range(900, 150, -10):
        bar.resize(width, 52)
        shown = [text for text in gauges(bar) if text]
        assert shown[:1] in ([], ["100.7 tok/s"])
        if len(shown) not in counts:
            counts.append(len(shown))
    assert counts == [2, 1, 0]
