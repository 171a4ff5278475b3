"""The sliders answer while they move, and what they say is the engine's own plan."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QHelpEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QSlider, QToolTip
from pytestqt.qtbot import QtBot

from app.look import Appearance, Look
from app.theme import load_theme
from engine import Engine
from engine.types import Budgets
from engine.units import human_bytes
from registry.fitting import Here, Local, fitter_of
from tests.gui.budgets.conftest import Sliders
from tests.gui.conftest import Heartbeat


def test_the_least_and_the_most_both_run_and_less_than_the_least_does_not(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    memory = panel.memory.slider
    memory.setFocus()
    sliders.qtbot.keyClick(memory, Qt.Key.Key_Home)
    sliders.settle()
    least = panel.budgets.ram
    assert least == memory.stops[0]
    assert panel.fit.words.text().startswith("Streams from disk, about ")
    assert panel.estimate.plan.ram == least
    sliders.qtbot.keyClick(memory, Qt.Key.Key_End)
    sliders.settle()
    assert panel.budgets.ram == memory.stops[-1] == panel.estimate.span.most
    assert panel.fit.words.text().startswith("Fits memory, about ")
    fitter = fitter_of(Local(broad), Budgets(), Here(broad.parent, None, measure=False))
    assert fitter.fit(Budgets(ram=least)).runs
    assert not fitter.fit(Budgets(ram=least - 1)).runs


def test_moving_a_slider_changes_the_line_and_the_bar(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    parts, said = dict(panel.bar.parts), panel.reason.text()
    assert "blocks on their way from disk" not in parts
    panel.memory.slider.setValue(10)
    sliders.settle()
    streamed = dict(panel.bar.parts)
    assert streamed["blocks on their way from disk"] > 0
    assert streamed["weights"] < parts["weights"]
    assert panel.reason.text() != said and f"may have {human_bytes(panel.budgets.ram)}" in panel.reason.text()
    assert human_bytes(streamed["weights"]) in panel.bar.accessibleDescription()
    panel.context.slider.setValue(0)
    sliders.settle()
    kv = "the conversation's keys and values"
    assert dict(panel.bar.parts)[kv] < streamed[kv]


def test_with_the_starter_more_memory_is_never_slower(sliders: Sliders, starter: Path) -> None:
    panel = sliders.open(starter)
    speeds = []
    for value in range(0, 50, 7):
        panel.memory.slider.setValue(value)
        sliders.settle()
        assert panel.runs
        speeds.append(panel.estimate.fitness.tok_s)
    assert speeds[0] < 0.9 * speeds[-1]
    assert all(before <= after * 1.05 for before, after in pairwise(speeds))


def test_a_packed_cache_takes_less(sliders: Sliders, starter: Path) -> None:
    panel = sliders.open(starter)
    exact = panel.estimate.plan.kv
    panel.cache.buttons["q8_0"].click()
    sliders.settle()
    assert panel.budgets.kv == "q8_0" and panel.estimate.plan.kv < 0.6 * exact
    assert not panel.cache.auto.isChecked()
    panel.cache.auto.click()
    sliders.settle()
    assert panel.budgets == Budgets() and panel.cache.buttons["f16"].isChecked()


def test_a_cache_that_the_model_cannot_have_says_why(sliders: Sliders, tiny: Path) -> None:
    panel = sliders.open(tiny)
    panel.cache.buttons["q8_0"].click()
    sliders.settle()
    assert panel.fit.words.text() == "Cannot run here" and "q8_0" in panel.reason.text()


def test_the_sliders_promise_what_loading_does(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    panel.memory.slider.setValue(30)
    panel.context.slider.setValue(1)
    sliders.settle()
    promised = panel.estimate.plan
    engine = Engine.load(broad, panel.budgets)
    try:
        assert (engine.plan.ram, engine.plan.context) == (panel.budgets.ram, panel.budgets.context)
        assert (engine.plan.kv, engine.plan.weights) == (promised.kv, promised.weights)
    finally:
        engine.close()


def test_auto_and_a_double_click_lead_back_to_the_mark(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    for row in (panel.memory, panel.context):
        assert row.auto.isChecked() and row.slider.stop == row.slider.mark
        row.slider.setValue(2)
        sliders.settle()
        assert not row.auto.isChecked() and row.slider.stop != row.slider.mark
        row.auto.click()
        sliders.settle()
        assert row.auto.isChecked() and row.slider.stop == row.slider.mark
        row.slider.setValue(2)
        sliders.qtbot.mouseDClick(row.slider, Qt.MouseButton.LeftButton)
        sliders.settle()
        assert row.auto.isChecked() and row.slider.stop == row.slider.mark
    assert panel.budgets == Budgets()


def test_switching_auto_off_keeps_the_place_it_had(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    panel.context.auto.click()
    sliders.settle()
    assert panel.budgets == Budgets(context=panel.context.slider.mark)
    assert not panel.context.auto.isChecked()


def test_what_cannot_run_says_why_and_what_to_do(sliders: Sliders, starter: Path) -> None:
    panel = sliders.open(starter)
    panel.memory.slider.setValue(0)
    sliders.settle()
    assert panel.runs
    panel.context.slider.setValue(panel.context.slider.maximum())
    sliders.settle()
    assert not panel.runs
    assert panel.fit.words.text() == "Cannot run here"
    assert "needs at least" in panel.reason.text() and "grant more memory" in panel.reason.text()
    assert panel.bar.parts == ()
    panel.context.auto.click()
    sliders.settle()
    assert panel.runs and panel.bar.parts


def test_a_file_that_is_no_model_says_so_and_nothing_can_be_moved(sliders: Sliders, home: Path) -> None:
    broken = home / "models" / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(40))
    panel = sliders.panel
    panel.open(lambda cancel: (sliders.machine.estimator_kept(broken, 0, cancel), None))
    sliders.qtbot.waitUntil(lambda: bool(panel.reason.text()), timeout=20_000)
    assert panel.fit.words.text() == "Cannot run here" and "broken.gguf" in panel.reason.text()
    assert not any(row.isEnabled() for row in (panel.memory, panel.context, panel.cache, panel.threads))


def test_what_was_chosen_before_stands_there(sliders: Sliders, broad: Path) -> None:
    chosen = Budgets(ram=3_000_000, context=64, kv="q8_0", threads=1)
    panel = sliders.open(broad, chosen)
    assert panel.budgets == panel.estimate.budgets == chosen
    assert (panel.context.slider.stop, panel.threads.slider.stop) == (64, 1)
    assert panel.memory.figure.text() == "3.0 MB"
    assert not any(row.auto.isChecked() for row in (panel.memory, panel.context, panel.threads))


def test_dragging_is_answered_and_never_waited_for(sliders: Sliders, starter: Path, heartbeat: Heartbeat) -> None:
    panel = sliders.open(starter)
    panel.memory.slider.setValue(1)
    sliders.settle()  # the drive is measured once
    longest, said = 0.0, set()
    for value in [*range(0, 60), *range(60, 0, -1)]:
        begun = time.perf_counter()
        panel.memory.slider.setValue(value)
        longest = max(longest, time.perf_counter() - begun)
        QApplication.processEvents()
        said.add(panel.fit.words.text())
        time.sleep(0.005)
    assert longest < 0.05, "a move waits for no answer"
    assert len(said) > 2, "the line changes while the slider moves"
    sliders.settle()
    assert panel.estimate.budgets == panel.budgets


def test_an_answer_about_another_model_is_dropped(sliders: Sliders, broad: Path, tiny: Path) -> None:
    panel = sliders.open(broad)
    panel.memory.slider.setValue(3)
    sliders.open(tiny)
    assert panel.budgets == Budgets()
    whole = sum(placed.nbytes for placed in panel.estimate.plan.placed)
    assert whole < 1_000_000 and dict(panel.bar.parts)["weights"] == whole


def test_the_keyboard_moves_by_steps_and_pages(sliders: Sliders, broad: Path) -> None:
    slider = sliders.open(broad).memory.slider
    sliders.qtbot.keyClick(slider, Qt.Key.Key_Home)
    for key, step in (
        (Qt.Key.Key_Right, 1),
        (Qt.Key.Key_Up, 1),
        (Qt.Key.Key_PageUp, slider.pageStep()),
        (Qt.Key.Key_PageDown, -slider.pageStep()),
        (Qt.Key.Key_Left, -1),
    ):
        before = slider.value()
        sliders.qtbot.keyClick(slider, key)
        assert slider.value() == before + step
    assert slider.pageStep() > 5


def test_a_screen_reader_hears_what_and_how_much(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    panel.context.slider.show_value(128)
    panel.context.slider.setValue(0)
    told = QAccessible.queryAccessibleInterface(panel.context.slider)
    assert told.role() == QAccessible.Role.Slider
    assert told.text(QAccessible.Text.Name) == "Context, 32 tokens"
    assert panel.memory.slider.accessibleName().startswith("Memory, ")
    assert panel.memory.slider.accessibleName().endswith("GB, by itself")
    for slider in panel.findChildren(QSlider):
        assert slider.accessibleDescription()


def test_the_wheel_moves_only_what_has_the_focus(sliders: Sliders, broad: Path) -> None:
    slider = sliders.open(broad).context.slider
    sliders.panel.threads.auto.setFocus()

    def roll() -> int:
        middle = QPointF(slider.rect().center())
        none, phase = QPoint(), Qt.ScrollPhase.NoScrollPhase
        turned = QPoint(0, -120)
        buttons, keys = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
        QApplication.sendEvent(
            slider, QWheelEvent(middle, slider.mapToGlobal(middle), none, turned, buttons, keys, phase, False)
        )
        return slider.value()

    before = slider.value()
    assert roll() == before
    slider.setFocus()
    assert roll() < before


def test_a_click_moves_it_there(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    slider = panel.context.slider
    sliders.qtbot.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(1, slider.height() // 2))
    sliders.settle()
    assert panel.budgets.context == slider.stops[0]


def test_the_tooltip_of_the_bar_has_words(sliders: Sliders, broad: Path) -> None:
    panel = sliders.open(broad)
    for what, nbytes in panel.bar.parts:
        assert what.replace("'", "&#x27;") in panel.bar.words and human_bytes(nbytes) in panel.bar.words
    at = panel.bar.rect().center()
    QApplication.sendEvent(panel.bar, QHelpEvent(QEvent.Type.ToolTip, at, panel.bar.mapToGlobal(at)))
    assert "weights" in QToolTip.text()
    QToolTip.hideText()


@pytest.mark.parametrize("width", [260, 372, 900])
def test_nothing_is_cut_at_any_width(sliders: Sliders, starter: Path, width: int) -> None:
    panel = sliders.open(starter)
    panel.resize(width, 600)
    QApplication.processEvents()
    assert panel.minimumSizeHint().width() <= 260
    for row in (panel.memory, panel.context, panel.threads):
        assert row.figure.width() >= row.figure.sizeHint().width()
        assert row.slider.geometry().right() < row.width()


def test_both_themes_draw_it(sliders: Sliders, broad: Path, appearance: Appearance, qtbot: QtBot) -> None:
    panel = sliders.open(broad)
    pictures = []
    for name in ("light", "dark"):
        panel.apply_look(Look(load_theme(name), appearance.look.type))
        color = load_theme(name).accent
        image = panel.bar.grab().toImage()
        pictures.append(image)
        slider = panel.memory.slider.grab().toImage()
        assert slider.pixelColor(12, 11).name() == color
    assert pictures[0] != pictures[1]
