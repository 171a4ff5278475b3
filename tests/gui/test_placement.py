"""How a model runs: one quiet line in the bar, and the table behind it, which keyboard and screen readers reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt, QTranslator
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.look import Appearance
from app.model_bar import ModelBar
from app.placement import beside, parts, sentence, sentences, table
from app.placement_view import Figures
from app.requests import Loaded, Loading
from app.start_panel import StartPanel
from app.window import Window
from engine import Plan
from tests.gui.conftest import MakeWindow
from tests.gui.silent_engine import SilentEngine, load_silent
from tests.plans import RESIDENT, STREAMED

MakeBar = Callable[..., ModelBar]


@pytest.fixture
def window(make_window: MakeWindow, qtbot: QtBot) -> Window:
    """With a model that streams."""
    window = make_window(load_silent)
    window.chat.load("large")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    return window


@pytest.fixture
def make_bar(qtbot: QtBot, appearance: Appearance) -> MakeBar:
    """A bar of some width, with a model that runs as planned."""

    def make(plan: Plan, *, width: int = 960, free: float = 0.5) -> ModelBar:
        bar = ModelBar(appearance.look)
        qtbot.addWidget(bar)
        bar.setMinimumWidth(1)
        bar.resize(width, 52)
        bar.show()
        bar.show_model(Loaded(SilentEngine.info, 8192, plan, 10**10, round(free * 10**10)))
        return bar

    return make


@pytest.mark.parametrize(
    ("plan", "free", "told"),
    [
        (RESIDENT, 0.5, "in memory"),
        (RESIDENT, 0.01, "memory is tight"),
        (STREAMED, 0.5, "streams from disk, about 2.6 tokens/s"),
        (replace(STREAMED, tok_s=None), 0.5, "streams from disk"),
        (STREAMED, 0.01, "streams from disk, memory is tight"),
    ],
)
def test_the_bar_says_in_one_line_how_the_model_runs(make_bar: MakeBar, plan: Plan, free: float, told: str) -> None:
    bar = make_bar(plan, free=free)
    assert bar.fit_button.isVisible()
    assert bar.fit_button.text() == told
    assert told in bar.fit_button.accessibleName()
    assert bar.fit_button.toolTip() == sentence(plan)


def test_with_less_room_less_is_said_and_never_half_of_it(make_bar: MakeBar) -> None:
    bar = make_bar(STREAMED)
    said = []
    for width in range(960, 300, -10):
        bar.resize(width, 52)
        text = bar.fit_button.text() if bar.fit_button.isVisible() else ""
        assert not text or bar.fit_button.width() >= bar.fit_button.sizeHint().width()
        if text not in said:
            said.append(text)
    assert said == ["streams from disk, about 2.6 tokens/s", "streams from disk", "from disk", ""]
    assert "about 2.6 tokens/s" in bar.fit_button.accessibleName()
    bar.resize(960, 52)
    assert bar.fit_button.text() == said[0]


def test_without_a_model_nothing_is_said(window: Window, qtbot: QtBot) -> None:
    assert window.model_bar.placement_action.isEnabled()
    window.model_bar.fit_button.click()
    window.chat.load("wait")
    assert not window.model_bar.fit_button.isVisible()
    assert not window.model_bar.placement.isVisible()
    assert not window.model_bar.placement_action.isEnabled()


def rows(figures: Figures) -> list[tuple[str, ...]]:
    return [
        (
            figures.verticalHeaderItem(row).text(),
            *(figures.item(row, column).text() for column in range(figures.columnCount())),
        )
        for row in range(figures.rowCount())
    ]


@pytest.mark.parametrize("plan", [RESIDENT, STREAMED])
def test_the_table_tells_what_lies_where(make_bar: MakeBar, plan: Plan) -> None:
    bar = make_bar(plan)
    bar.fit_button.click()
    view = bar.placement
    assert view.isVisible() and view.sentence.text() == " ".join(sentences(plan))
    heads = [view.weights.horizontalHeaderItem(column).text() for column in range(view.weights.columnCount())]
    assert tuple(heads) == table(plan).tiers
    assert rows(view.weights) == list(table(plan).cells)
    assert [name for name, _ in rows(view.memory)[1:]] == [what for what, _ in parts(plan)]
    assert [name for name, _ in rows(view.beside)] == [what for what, _ in beside(plan)]
    for figures in (view.weights, view.memory, view.beside):
        assert figures.width() >= figures.needed and figures.height() >= figures.verticalHeader().length()
        assert not figures.verticalScrollBar().isVisible()
    view.close()


def test_it_tells_what_there_is_less_of_than_was_wanted(make_bar: MakeBar) -> None:
    plan = replace(STREAMED, granted=30 * 10**9, context=2048)
    bar = make_bar(plan)
    view = bar.placement
    told = " ".join(sentences(plan))
    assert view.sentence.text() == view.accessibleDescription() == told
    assert "30.0 GB were granted" in told and "2,048 tokens instead of 16,384" in told


class Marked(QTranslator):
    """A language in which everything is said between «»."""

    def translate(self, context: str, text: str, disambiguation: str | None = None, n: int = -1) -> str:
        return f"«{text}»"


def test_its_words_are_those_of_the_persons_language(make_bar: MakeBar, qtbot: QtBot) -> None:
    plan = replace(STREAMED, granted=30 * 10**9, context=2048)
    language, app = Marked(), QApplication.instance()
    app.installTranslator(language)
    try:
        bar, start = make_bar(plan), StartPanel()
        qtbot.addWidget(start)
        start.show_loading(Loading("", 0, 0, plan))
    finally:
        app.removeTranslator(language)
    assert bar.placement.sentence.text().count("«") == 5  # four sentences, and the speed in the first
    assert bar.fit_button.toolTip().startswith("«Streams 410.0 MB") and bar.fit_button.text().endswith("tokens/s»")
    assert start.sentence.text().startswith("«Streams 410.0 MB")
    view = bar.placement
    heads = [view.weights.horizontalHeaderItem(column).text() for column in range(view.weights.columnCount())]
    for text in (*heads, *(name for each in (view.weights, view.memory, view.beside) for name, *_ in rows(each))):
        assert text.startswith("«") and text.endswith("»")


def test_the_keyboard_opens_it_goes_through_it_and_comes_back(window: Window, qtbot: QtBot) -> None:
    button, view = window.model_bar.fit_button, window.model_bar.placement
    button.setFocus()
    qtbot.keyClick(button, Qt.Key.Key_Space)
    assert view.isVisible()
    reached = []
    for _ in range(4):
        QTest.keyClick(view.focusWidget() or view, Qt.Key.Key_Tab)
        reached.append(view.focusWidget())
    assert reached == [view.sentence, view.weights, view.memory, view.beside]
    view.weights.setFocus()
    QTest.keyClick(view.weights, Qt.Key.Key_Down)
    assert view.weights.currentRow() == 1
    QTest.keyClick(view.weights, Qt.Key.Key_Escape)
    assert not view.isVisible()
    assert QApplication.focusWidget() is button


def test_a_screen_reader_finds_the_sentence_and_cells_with_their_names(window: Window) -> None:
    view = window.model_bar.placement
    window.model_bar.placement_action.trigger()
    assert view.isVisible()
    assert view.accessibleDescription() == " ".join(sentences(STREAMED))
    told = QAccessible.queryAccessibleInterface(view.weights)
    assert told.role() == QAccessible.Role.Table
    assert told.text(QAccessible.Text.Name) == "Where the weights are"
    texts = {told.child(at).text(QAccessible.Text.Name) for at in range(told.childCount())}
    assert {"attention", "VRAM", "13.4 GB"} <= texts
    view.close()


@pytest.mark.parametrize("width", [420, 960])
def test_it_opens_within_the_window(window: Window, qtbot: QtBot, width: int) -> None:
    window.resize(width, 600)
    qtbot.waitUntil(lambda: window.width() == width)
    window.model_bar.show_placement()
    view, frame = window.model_bar.placement.geometry(), window.geometry()
    moved = 2  # the offscreen platform shifts every window by the width of a frame
    assert frame.left() <= view.left() and view.right() <= frame.right() + moved
    window.model_bar.placement.close()


def test_it_stays_on_the_screen_where_the_window_is_low(window: Window) -> None:
    screen = window.screen().availableGeometry()
    window.move(window.x(), screen.bottom() - 120)
    window.model_bar.show_placement()
    view = window.model_bar.placement
    assert view.geometry().bottom() <= screen.bottom() + 2 and view.y() >= screen.top()
    view.close()


def test_while_it_loads_the_person_is_told_how_it_will_run(make_window: MakeWindow, qtbot: QtBot) -> None:
    window = make_window(load_silent)
    window.chat.load("wait")
    assert "Streams" not in window.start.sentence.text()
    window.bridge.notice.emit(Loading("Reading weights", 1, 4, STREAMED))
    told = window.start.sentence.text().splitlines()
    assert told == [sentence(STREAMED), "You can write your message meanwhile."]
    window.bridge.notice.emit(Loading("Reading weights", 2, 4, STREAMED))
    assert window.start.sentence.text().splitlines() == told
