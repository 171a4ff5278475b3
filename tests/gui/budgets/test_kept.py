"""What is chosen on the sliders is what the model is loaded with, now and at the next start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.budgets.changing import Changing
from app.budgets.chosen import ChosenBudgets
from app.places import budgets_file
from app.window import Window
from engine.types import Budgets, Settings
from tests.gui.budgets.conftest import WAIT

Open = Callable[[], Window]


def load(window: Window, model: Path, qtbot: QtBot) -> None:
    window.chat.load(str(model))
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=WAIT)


def change(window: Window, qtbot: QtBot) -> Changing:
    """Open the sliders of the model that is loaded."""
    window.model_bar.show_placement()
    window.model_bar.placement.change_button.click()
    changing = window.budgets.changing
    qtbot.waitUntil(lambda: changing.panel.settled, timeout=WAIT)
    return changing


def move(changing: Changing, qtbot: QtBot) -> Budgets:
    """Less memory and a shorter context."""
    changing.panel.memory.slider.setValue(30)
    changing.panel.context.slider.setValue(1)
    qtbot.waitUntil(changing.apply_button.isEnabled, timeout=WAIT)
    return changing.panel.budgets


def test_apply_loads_it_anew_and_the_conversation_stays(open_window: Open, broad: Path, qtbot: QtBot) -> None:
    window = open_window()
    load(window, broad, qtbot)
    window.chat.settings = Settings(max_tokens=3, temperature=0)
    window.chat.send("Hello")
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=WAIT)
    changing = change(window, qtbot)
    assert "conversation stays" in changing.note.text()
    assert not changing.apply_button.isEnabled(), "there is nothing to apply yet"
    budgets = move(changing, qtbot)
    changing.apply_button.click()
    assert not window.model_bar.placement.isVisible()
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=WAIT)
    plan = window.chat.loaded.plan
    assert (plan.ram, plan.context) == (budgets.ram, budgets.context)
    assert len(window.chat.session.exchanges) == 1
    assert window.pages.currentWidget() is window.conversation
    assert change(window, qtbot).panel.budgets == budgets
    window.model_bar.placement.close()


def test_it_is_used_at_the_next_start(open_window: Open, broad: Path, tiny: Path, qtbot: QtBot) -> None:
    window = open_window()
    load(window, broad, qtbot)
    changing = change(window, qtbot)
    budgets = move(changing, qtbot)
    changing.apply_button.click()
    qtbot.waitUntil(lambda: ChosenBudgets(budgets_file()).of(broad) == budgets, timeout=WAIT)
    window.close()
    window = open_window()
    load(window, broad, qtbot)
    assert (window.chat.loaded.plan.ram, window.chat.loaded.plan.context) == (budgets.ram, budgets.context)
    assert change(window, qtbot).panel.budgets == budgets
    window.model_bar.placement.close()
    load(window, tiny, qtbot)
    assert window.chat.loaded.plan.granted is None, "the choice is for that model alone"


@pytest.mark.parametrize("by_key", [False, True])
def test_cancel_changes_nothing(open_window: Open, broad: Path, qtbot: QtBot, by_key: bool) -> None:
    window = open_window()
    load(window, broad, qtbot)
    before = window.chat.loaded
    changing = change(window, qtbot)
    move(changing, qtbot)
    if by_key:
        QTest.keyClick(changing.panel.memory.slider, Qt.Key.Key_Escape)
    else:
        changing.cancel_button.click()
    view = window.model_bar.placement
    assert not view.isVisible() and window.chat.loaded is before
    assert not budgets_file().exists()
    window.model_bar.show_placement()
    assert view.weights.isVisible() and not changing.isVisible(), "it begins with the figures again"
    view.close()
    assert change(window, qtbot).panel.budgets == Budgets()
    view.close()


def test_what_cannot_run_cannot_be_applied(open_window: Open, starter: Path, qtbot: QtBot) -> None:
    window = open_window()
    load(window, starter, qtbot)
    changing = change(window, qtbot)
    panel = changing.panel
    panel.memory.slider.setValue(0)
    qtbot.waitUntil(changing.apply_button.isEnabled, timeout=WAIT)
    panel.context.slider.setValue(panel.context.slider.maximum())
    qtbot.waitUntil(lambda: panel.fit.words.text() == "Cannot run here", timeout=WAIT)
    assert not changing.apply_button.isEnabled()
    window.model_bar.placement.close()


def test_the_keyboard_reaches_every_part(open_window: Open, broad: Path, qtbot: QtBot) -> None:
    window = open_window()
    load(window, broad, qtbot)
    changing = change(window, qtbot)
    panel = changing.panel
    panel.memory.slider.setValue(40)
    qtbot.waitUntil(changing.apply_button.isEnabled, timeout=WAIT)
    view = window.model_bar.placement
    assert view.focusWidget() is panel.memory.slider
    reached = {view.focusWidget()}
    for _ in range(16):
        QTest.keyClick(view.focusWidget(), Qt.Key.Key_Tab)
        reached.add(view.focusWidget())
    for part in (panel.memory, panel.context, panel.threads):
        assert {part.slider, part.auto} <= reached
    assert {panel.cache.auto, changing.cancel_button, changing.apply_button} <= reached
    view.close()


@pytest.mark.parametrize("width", [420, 1280])
def test_the_sliders_open_within_the_window(open_window: Open, broad: Path, qtbot: QtBot, width: int) -> None:
    window = open_window()
    load(window, broad, qtbot)
    window.resize(width, 700)
    QApplication.processEvents()
    changing = change(window, qtbot)
    view, frame = window.model_bar.placement.geometry(), window.geometry()
    moved = 2  # the offscreen platform shifts every window by the width of a frame
    assert frame.left() <= view.left() and view.right() <= frame.right() + moved
    height = view.height()
    changing.panel.memory.slider.setValue(0)
    qtbot.waitUntil(lambda: changing.panel.settled, timeout=WAIT)
    assert window.model_bar.placement.height() == height, "nothing jumps while a slider moves"
    window.model_bar.placement.close()


def test_a_choice_that_fits_no_more_does_not_keep_the_model_from_loading(
    open_window: Open, broad: Path, qtbot: QtBot
) -> None:
    ChosenBudgets(budgets_file()).choose(broad, Budgets(ram=100))
    window = open_window()
    load(window, broad, qtbot)
    assert window.chat.loaded.plan.granted is None


def test_load_on_the_models_page_uses_what_stands_on_the_sliders(open_window: Open, broad: Path, qtbot: QtBot) -> None:
    window = open_window()
    window.models.show()
    page = window.models.page
    page.show_part("library")
    qtbot.waitUntil(lambda: page.library.rows.rowCount() == 1, timeout=WAIT)
    page.library.list.choose(page.library.rows.row(0).key)
    panel = page.model.budgets
    qtbot.waitUntil(lambda: panel.settled and panel.isVisible(), timeout=WAIT)
    panel.memory.slider.setValue(30)
    qtbot.waitUntil(lambda: panel.settled, timeout=WAIT)
    budgets = panel.budgets
    qtbot.waitUntil(lambda: ChosenBudgets(budgets_file()).of(broad) == budgets, timeout=WAIT)
    page.model.actions.main.click()
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=WAIT)
    assert window.chat.loaded.plan.ram == budgets.ram
    window.models.show()
    assert not panel.isVisible() and page.model.where.isVisible()


def test_load_is_not_offered_with_what_cannot_run(open_window: Open, starter: Path, home: Path, qtbot: QtBot) -> None:
    (home / "models" / starter.name).symlink_to(starter)
    window = open_window()
    window.models.show()
    page = window.models.page
    page.show_part("library")
    qtbot.waitUntil(lambda: page.library.rows.rowCount() == 1, timeout=WAIT)
    page.library.list.choose(page.library.rows.row(0).key)
    panel, button = page.model.budgets, page.model.actions.main
    qtbot.waitUntil(lambda: panel.settled, timeout=WAIT)
    panel.memory.slider.setValue(0)
    qtbot.waitUntil(lambda: panel.settled, timeout=WAIT)
    kept = panel.budgets
    assert button.isEnabled()
    panel.context.slider.setValue(panel.context.slider.maximum())
    qtbot.waitUntil(lambda: panel.settled, timeout=WAIT)
    assert not button.isEnabled() and "needs at least" in panel.reason.text()
    qtbot.waitUntil(lambda: ChosenBudgets(budgets_file()).of(home / "models" / starter.name) == kept, timeout=WAIT)
    panel.memory.auto.click()
    qtbot.waitUntil(button.isEnabled, timeout=WAIT)
