"""The page as it is seen and used: its sections, its troubles, its keyboard, and that it keeps nobody waiting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QPoint, Qt, QTimer, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QLabel,
    QLineEdit,
    QProgressBar,
    QScrollArea,
    QWidget,
)
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from app.elided_label import ElidedLabel
from app.look import Appearance
from app.models_page.late_hub import LateHub
from app.models_page.page import ModelsPage
from app.theme import load_theme
from app.window import Window
from registry.library import Library
from tests.gui.conftest import Heartbeat
from tests.gui.dropped import files
from tests.gui.models_page.conftest import GATED, OTHER, TINY, Walk
from tests.hub_faults import Hang, LoginPage, Status
from tests.hub_server import HubServer
from tests.registry.test_tokens import MemoryKeyring
from tests.tiny_chat import write_tiny_chat


def keys(page: ModelsPage) -> list[str]:
    rows = page.sections[page.part].rows
    return [rows.row(number).key for number in range(rows.rowCount())]


def test_it_opens_by_its_button_and_by_keys_and_the_chat_is_as_it_was(window: Window, qtbot: QtBot) -> None:
    window.composer.draft.setPlainText("Half a thought")
    window.model_bar.library_button.click()
    assert window.models.page.isVisible()
    assert not window.composer.isVisible()
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert not window.models.page.isVisible()
    assert window.composer.draft.toPlainText() == "Half a thought"
    assert window.composer.draft.hasFocus()
    shift = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    qtbot.keyClick(window.composer.draft, Qt.Key.Key_M, shift)
    assert window.models.page.isVisible()
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_M, shift)
    assert window.composer.isVisible()
    window.model_bar.library_button.click()
    window.model_bar.new_chat_button.click()
    assert window.composer.isVisible()


def test_what_suits_the_machine_stands_first_and_says_why(page: ModelsPage, walk: Walk) -> None:
    walk.until(lambda: page.recommended.rows.rowCount())
    first = page.recommended.rows.row(0)
    assert first.heading == "Best for this computer"
    assert first.fitness is not None and first.fitness.kind == "memory"
    assert page.recommended.list.row == first
    assert page.repository.title.text() == first.title
    assert "pleasant speed" in page.repository.paragraph.text()
    headings = [page.recommended.rows.row(number).heading for number in range(page.recommended.rows.rowCount())]
    assert [heading for heading in headings if heading] == ["Best for this computer", "Also worth a look", "All others"]


def test_an_answer_to_an_older_question_is_dropped(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    walk.search("", OTHER)
    hub.fault("/api/models", Hang())
    page.search.field.setText("Other")
    page.search.search()
    walk.until(lambda: any("Other" in asked.query for asked in hub.requests))
    page.search.field.setText("Tiny")
    page.search.search()
    walk.until(lambda: keys(page) == [TINY])
    hub.release()
    walk.qtbot.wait(100)
    assert keys(page) == [TINY]


def test_filters_narrow_down_what_was_found(page: ModelsPage, walk: Walk) -> None:
    walk.search("", OTHER)
    assert keys(page) == [OTHER, TINY, GATED]
    page.search.filters.size.choices[2].trigger()
    assert keys(page) == [OTHER, GATED]
    page.search.filters.licence.choices[1].trigger()
    assert keys(page) == [OTHER]
    page.search.filters.sees.click()
    assert keys(page) == []
    assert "filtered out" in page.search.empty.text()
    page.search.filters.sees.click()
    page.search.filters.licence.choices[0].trigger()
    page.search.filters.size.choices[0].trigger()
    assert keys(page) == [OTHER, TINY, GATED]


def test_a_model_that_the_engine_does_not_know_is_told_before_it_is_opened(
    page: ModelsPage, walk: Walk, hub: HubServer
) -> None:
    strange = "labs/Strange-1B-GGUF"
    hub.add(strange, {"Strange-Q4_K_M.gguf": b"x"}, family="mamba9", downloads=5)
    walk.search("", strange)
    row = page.search.rows.row(page.search.rows.number_of(strange))
    assert row.fitness is not None and row.fitness.kind == "cannot" and "“mamba9”" in row.fitness.why
    page.search.filters.fits.click()
    assert strange not in keys(page) and OTHER in keys(page)


def test_offline_is_a_calm_line_and_ends_by_trying_again(
    page: ModelsPage, walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = page.search.services.source
    assert isinstance(source, LateHub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source.renew()
    page.show_part("search")
    walk.until(lambda: page.search.trouble.isVisible())
    assert page.search.trouble.line.sentence.startswith("HF_HUB_OFFLINE is set")
    assert not page.search.trouble.form.isVisible()
    monkeypatch.delenv("HF_HUB_OFFLINE")
    source.renew()
    page.search.trouble.again_button.click()
    walk.until(lambda: OTHER in keys(page))
    assert not page.search.trouble.isVisible()


@pytest.mark.parametrize(
    ("fault", "words"), [(LoginPage(), "sign in to this network"), (Status(503), "cannot answer just now")]
)
def test_what_the_network_does_is_told_where_it_is_met(
    page: ModelsPage, walk: Walk, hub: HubServer, fault: LoginPage | Status, words: str
) -> None:
    walk.search("", OTHER)
    hub.fault(f"/api/models/{OTHER}", fault)
    page.search.list.choose(OTHER)
    walk.until(lambda: page.repository.trouble.isVisible())
    assert words in page.repository.trouble.line.sentence
    page.repository.trouble.again_button.click()
    walk.until(lambda: page.repository.table.rowCount() == 2)


def test_a_gated_model_asks_for_a_token_and_keeps_it_in_the_keyring(
    page: ModelsPage, walk: Walk, hub: HubServer, kept: MemoryKeyring, library: Library
) -> None:
    walk.details(GATED)
    trouble = page.repository.trouble
    walk.until(lambda: trouble.form.isVisible())
    assert "needs an access token" in trouble.line.sentence
    assert trouble.token.echoMode() == QLineEdit.EchoMode.Password
    trouble.token.setText("no")
    trouble.keep_button.click()
    walk.until(lambda: "That is not an access token" in trouble.line.sentence)
    assert not kept.kept
    trouble.token.setText(hub.token)
    walk.qtbot.keyClick(trouble.token, Qt.Key.Key_Return)
    walk.until(lambda: not trouble.isVisible())
    assert list(kept.kept.values()) == [hub.token]
    assert trouble.token.text() == ""
    walk.until(lambda: walk.main() == "Download")
    walk.press()
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["done"])


def test_what_may_be_private_asks_for_a_token_and_what_the_proxy_refuses_does_not(
    page: ModelsPage, walk: Walk, hub: HubServer
) -> None:
    walk.search("", OTHER)
    trouble = page.repository.trouble
    for key, status, asked in ((OTHER, 404, True), (TINY, 407, False)):
        hub.fault(f"/api/models/{key}", Status(status))
        page.search.list.choose(key)
        walk.until(lambda: page.repository.trouble.isVisible())
        assert (trouble.form.isVisible(), trouble.again_button.isVisible()) == (asked, not asked)


class Browser(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url.toString())


def test_the_page_on_which_to_agree_is_a_click_away(
    page: ModelsPage, walk: Walk, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser()
    QDesktopServices.setUrlHandler("http", browser, "open")
    try:
        walk.details(GATED)
        walk.until(lambda: page.repository.trouble.page_button.isVisible())
        page.repository.trouble.page_button.click()
        monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("://", "://name:password@"))
        page.repository.trouble.page_button.click()
    finally:
        QDesktopServices.unsetUrlHandler("http")
    assert browser.opened == 2 * [f"{hub.url}/{GATED}"]
    page.recommended.trouble.ask_for_token("Of nothing in particular.")
    assert page.recommended.trouble.page_button.isHidden()


def test_a_download_that_is_refused_asks_for_a_token_too(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    walk.download(GATED, "Q4_K_M")
    walk.until(lambda: walk.main() == "Resume")
    page.show_part("downloads")
    trouble = page.download.trouble
    assert trouble.form.isVisible()
    assert "agreed to its conditions" in trouble.line.sentence
    trouble.token.setText(hub.token)
    trouble.keep_button.click()
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["done"])
    assert not trouble.isVisible()


def test_a_dropped_model_is_used_where_it_is(page: ModelsPage, walk: Walk, library: Library, folder: Path) -> None:
    path = write_tiny_chat(folder / "水車.gguf", seed=3)
    data = files(path)
    action = Qt.DropAction.MoveAction | Qt.DropAction.CopyAction
    buttons, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    entering = QDragEnterEvent(QPoint(300, 300), action, data, buttons, none)
    QApplication.sendEvent(page, entering)
    assert entering.isAccepted() and entering.dropAction() == Qt.DropAction.CopyAction
    QApplication.sendEvent(page, QDropEvent(QPoint(300, 300), action, data, buttons, none))
    assert page.importing.isVisible()
    page.importing.refer_button.click()
    walk.until(lambda: [model.linked for model in library.list()] == [True])
    walk.until(lambda: page.model.title.text() == "水車" and page.part == "library")
    assert not page.importing.isVisible()
    page.model.actions.quiet[0].click()
    assert "stay where they are" in page.model.actions.asked
    page.model.actions.quiet[0].click()
    walk.until(lambda: library.list() == ())
    assert path.exists()


def test_what_is_no_model_is_refused_with_a_sentence(page: ModelsPage, walk: Walk, folder: Path) -> None:
    path = folder / "broken.gguf"
    path.write_bytes(b"GGUF and then nothing")
    page.importing.ask([path])
    page.importing.copy_button.click()
    walk.until(lambda: page.importing.notice.isVisible())
    assert "broken.gguf" in page.importing.notice.sentence
    page.importing.stop_button.click()
    assert not page.importing.isVisible()


def test_the_models_under_its_views_are_sound(page: ModelsPage, walk: Walk, qtmodeltester: ModelTester) -> None:
    qtmodeltester.check(page.recommended.rows)
    qtmodeltester.check(page.repository.table)
    qtmodeltester.check(page.search.rows)
    walk.until(lambda: page.recommended.rows.rowCount())
    walk.details(OTHER)
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    qtmodeltester.check(page.library.rows)
    qtmodeltester.check(page.downloads.rows)


def test_the_whole_way_is_gone_with_the_keyboard(page: ModelsPage, walk: Walk, qtbot: QtBot) -> None:
    walk.search("", OTHER)
    page.search.field.setFocus()
    reached: list[QWidget] = []
    while (at := QApplication.focusWidget()) not in reached:
        reached.append(at)
        qtbot.keyClick(at, Qt.Key.Key_Tab)
    for wanted in (page.search.list, page.search.field, page.search.button, page.search.filters.size):
        assert wanted in reached
    page.search.list.setFocus()
    qtbot.keyClick(page.search.list, Qt.Key.Key_Down)
    walk.until(lambda: page.repository.origin.text() == TINY and page.repository.offers.isVisible())
    walk.until(lambda: walk.main() == "Download")
    qtbot.keyClick(page.search.list, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is page.repository.offers
    qtbot.keyClick(page.repository.offers, Qt.Key.Key_Return)
    walk.until(lambda: walk.main() == "Load")


def test_everything_has_a_name(page: ModelsPage, walk: Walk) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    kinds = (QAbstractButton, QAbstractItemView, QLineEdit, QProgressBar)
    controls = [widget for kind in kinds for widget in page.findChildren(kind) if not widget.isHidden()]
    own = [widget for widget in controls if not widget.objectName().startswith("qt_")]
    assert len(own) > 20
    assert [
        widget
        for widget in own
        if not widget.accessibleName()
        and not (isinstance(widget, QAbstractButton) and widget.text())
        and not isinstance(widget.parent(), QLineEdit | QAbstractItemView)
    ] == []
    row = page.search.rows.index(0)
    assert row.data(Qt.ItemDataRole.AccessibleTextRole).startswith("Tiny-Chat-0.1M-GGUF")


def test_in_a_narrow_window_list_and_details_take_turns(window: Window, page: ModelsPage, walk: Walk) -> None:
    window.resize(700, 640)
    walk.search("", OTHER)
    page.search.list.choose(OTHER)
    assert page.search.list.isVisible() and not page.repository.isVisible()
    walk.qtbot.keyClick(page.search.list, Qt.Key.Key_Return)
    assert page.repository.isVisible() and not page.search.list.isVisible()
    walk.until(lambda: page.repository.offers.isVisible())
    walk.qtbot.keyClick(page.repository.offers, Qt.Key.Key_Escape)
    assert page.search.list.isVisible() and not page.repository.isVisible()
    walk.qtbot.keyClick(page.search.list, Qt.Key.Key_Escape)
    assert not page.isVisible()


def assert_nothing_sticks_out(page: ModelsPage) -> None:
    for widget in page.findChildren(QWidget):
        if widget.isVisible() and not isinstance(widget.parent(), QAbstractItemView | QScrollArea | QLineEdit):
            right = widget.mapTo(page, QPoint(widget.width(), 0)).x()
            assert right <= page.width(), f"{widget} {widget.objectName()} ends at {right}"
    for text in page.findChildren(QLabel):
        if text.isVisible() and not text.wordWrap() and not isinstance(text, ElidedLabel):
            assert text.width() >= text.sizeHint().width(), f"{text.text()} is cut"


@pytest.mark.parametrize("width", [420, 560, 760, 1280])
def test_nothing_sticks_out_at_any_width(window: Window, page: ModelsPage, walk: Walk, width: int) -> None:
    walk.details(GATED)
    walk.until(lambda: page.repository.trouble.isVisible())
    window.resize(width, 640)
    page.search.opened.emit(GATED)
    walk.qtbot.wait(20)
    assert window.width() == width
    assert_nothing_sticks_out(page)
    page.show_part("computer")
    walk.until(lambda: page.computer.views)
    walk.qtbot.wait(20)
    assert window.width() == width
    assert_nothing_sticks_out(page)


def test_the_window_goes_on_while_the_hub_does_not_answer(
    page: ModelsPage, walk: Walk, hub: HubServer, heartbeat: Heartbeat
) -> None:
    walk.search("", OTHER)
    hub.fault(f"/api/models/{OTHER}", Hang())
    page.search.list.choose(OTHER)
    before = heartbeat.beats
    walk.qtbot.wait(200)
    assert heartbeat.beats - before > 50
    assert page.repository.waiting.isVisible()
    page.search.list.choose(TINY)
    walk.until(lambda: page.repository.table.rowCount() == 1)


def test_nothing_ticks_while_it_is_hidden(window: Window, page: ModelsPage, walk: Walk) -> None:
    walk.until(lambda: page.recommended.rows.rowCount() and page.repository.trouble.isVisible())
    window.models.hide()
    walk.until(lambda: not page.tasks.busy)
    assert [timer for timer in page.findChildren(QTimer) if timer.isActive()] == []


def test_it_follows_light_and_dark(page: ModelsPage, qapp: QApplication, appearance: Appearance) -> None:
    hints = qapp.styleHints()
    for scheme, name in ((Qt.ColorScheme.Dark, "dark"), (Qt.ColorScheme.Light, "light")):
        hints.colorSchemeChanged.emit(scheme)
        assert page.grab().toImage().pixelColor(page.width() - 4, 80).name() == load_theme(name).surface


def test_what_cannot_run_is_not_offered_as_the_way_to_go(page: ModelsPage, walk: Walk, hub: HubServer) -> None:
    hub.add("labs/Broken-1B-GGUF", {"Broken-Q4_K_M.gguf": b"GGUF and then nothing"})
    page.search.services.oracle.exact.add("labs/Broken-1B-GGUF")
    walk.details("labs/Broken-1B-GGUF")
    walk.until(lambda: page.repository.table.choices[0].fitness.kind == "cannot")
    assert page.repository.table.index(0, 2).data().startswith("cannot run here: Broken-Q4_K_M.gguf")
    assert not page.repository.actions.main.isVisible()
    assert page.repository.actions.quiet[0].text() == "Download anyway"
    assert "Broken-Q4_K_M.gguf" in page.repository.actions.sentence.text()


def test_the_start_panel_leads_to_the_page(window: Window, qtbot: QtBot) -> None:
    window.start.models_button.click()
    assert window.models.shown


def test_a_suggested_model_that_a_search_finds_too_is_told_of_as_each_tells(page: ModelsPage, walk: Walk) -> None:
    walk.until(lambda: page.recommended.rows.rowCount())
    suggestion = page.recommended.suggestion(page.recommended.rows.row(0).key)
    walk.details(TINY)
    page.repository.show_suggestion(replace(suggestion, repository=TINY))
    assert page.repository.title.text() == suggestion.name
    page.search.list.opened.emit(TINY)
    assert page.repository.title.text() == "Tiny-Chat-0.1M-GGUF"


def test_a_model_counts_as_used_also_where_the_page_was_never_seen(window: Window, qtbot: QtBot, folder: Path) -> None:
    path = write_tiny_chat(folder / "mine.gguf")
    window.chat.load(str(path))
    qtbot.waitUntil((folder / "last-used.json").exists, timeout=20_000)
    assert str(path) in (folder / "last-used.json").read_text(encoding="utf-8")
