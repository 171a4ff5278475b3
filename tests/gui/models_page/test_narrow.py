"""What a person decides by is never cut short, however narrow the window is."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.models_page.action_bar import JOINED, ActionBar, Deed
from app.models_page.offer_table import FIT, NAME, SIZE
from app.models_page.page import ModelsPage
from app.window import Window
from tests.gui.models_page.conftest import OTHER, TINY, Walk


def shown_whole(text: QLabel) -> bool:
    return text.isVisible() and text.wordWrap() and text.heightForWidth(text.width()) <= text.height()


@pytest.mark.parametrize("width", [420, 760, 1280])
def test_a_question_and_figures_wrap_where_there_is_little_room(
    window: Window, page: ModelsPage, walk: Walk, width: int
) -> None:
    walk.download(TINY, "Q8_0")
    walk.until(lambda: walk.main() == "Load")
    window.resize(width, 760)
    page.search.opened.emit(TINY)
    actions = page.repository.actions
    figures = next(text for text in actions.findChildren(QLabel) if text.text().replace(JOINED, "") == actions.told)
    walk.until(lambda: shown_whole(figures))
    page.show_part("library")
    page.library.list.choose_first()
    page.library.opened.emit(page.library.rows.row(0).key)
    page.model.actions.quiet[1 if page.model.actions.quiet[1].isVisible() else 0].click()
    asked = page.model.actions.asked
    assert asked.startswith("Delete it from this computer?")
    label = next(text for text in page.model.actions.findChildren(QLabel) if text.text().replace("\u200b", "") == asked)
    walk.until(lambda: shown_whole(label))


def test_where_it_is_narrow_the_fit_of_a_quantisation_stands_below_its_name(
    window: Window, page: ModelsPage, walk: Walk
) -> None:
    walk.details(OTHER)
    offers, table = page.repository.offers, page.repository.table
    assert not offers.stacked and not offers.isColumnHidden(FIT)
    wide = offers.rowHeight(0)
    window.resize(420, 760)
    page.search.opened.emit(OTHER)
    walk.until(lambda: offers.stacked and not page.search.list.isVisible())
    assert [column for column in (NAME, SIZE, FIT) if not offers.isColumnHidden(column)] == [NAME]
    assert offers.rowHeight(0) > wide
    walk.until(lambda: offers.columnWidth(NAME) == offers.viewport().width() > 300)
    told = table.index(0, FIT).data()
    assert QFontMetrics(offers.font()).horizontalAdvance(told) < offers.columnWidth(NAME)
    assert table.index(0, NAME).data(Qt.ItemDataRole.AccessibleDescriptionRole).endswith(told)
    assert not offers.verticalScrollBar().isVisible()
    window.resize(1280, 800)
    walk.until(lambda: not offers.stacked and not offers.isColumnHidden(SIZE))
    assert offers.rowHeight(0) == wide


def test_words_stand_above_buttons_that_leave_them_no_room(qtbot: QtBot) -> None:
    bar = ActionBar()
    qtbot.addWidget(bar)
    main, cancel = Deed("Pause all of them and move"), Deed("Cancel")
    bar.show_deeds("3 downloads are running", "Paused while the models move.", main, [cancel])
    name = next(text for text in bar.findChildren(QLabel) if text.text() == "3 downloads are running")
    bar.resize(420, 120)
    bar.show()
    qtbot.waitUntil(lambda: name.geometry().bottom() < bar.main.y() and name.width() > name.sizeHint().width())
    assert bar.main.geometry().right() < bar.width()
    bar.resize(900, 120)
    qtbot.waitUntil(lambda: name.geometry().right() < bar.quiet[0].x() and name.y() > bar.main.y() - name.height())
    assert abs(name.geometry().center().y() - bar.main.geometry().center().y()) < bar.main.height()
