"""The folder of the models: told, moved with real files, offered again where that was cut off, and its drive gone."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from app.models_page.away import Away
from app.models_page.last_used import LastUsed
from app.models_page.page import ModelsPage
from app.models_page.standing import Standing
from app.window import Window
from engine.cancel import Cancel
from registry import moving
from registry.library import Library
from registry.place import Place, choose
from tests.gui.models_page.conftest import LARGE, OTHER, TINY, Open, Walk
from tests.gui.models_page.test_page import assert_nothing_sticks_out
from tests.hub_faults import Slow
from tests.hub_server import HubServer
from tests.tiny_chat import write_tiny_chat


@pytest.fixture
def place(folder: Path) -> Path:
    return folder / "settings" / "library.json"


@pytest.fixture
def library(folder: Path, place: Path) -> Library:
    """One that a person chose, with two models in it."""
    root = folder / "drive" / "models"
    choose(root, place)
    write_tiny_chat(root / "水車.gguf")
    write_tiny_chat(root / "mill.gguf", seed=2)
    return Library(root, chosen=True)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder is on a drive of its own, to which nothing can be renamed."""
    monkeypatch.setattr(moving._Move, "_can_rename", lambda self: False)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The second file is copied when this is set."""
    go, copied = threading.Event(), []
    real = moving.copy_file

    def copy(old: Path, new: Path, came: Callable[[int], None], cancel: Cancel) -> str:
        while copied and not go.wait(0.01):
            cancel.check()
        copied.append(new)
        return real(old, new, came, cancel)

    monkeypatch.setattr(moving, "copy_file", copy)
    return go


def titles(page: ModelsPage) -> list[str]:
    rows = page.library.rows
    return [rows.row(number).title for number in range(rows.rowCount())]


def ask(page: ModelsPage, walk: Walk) -> None:
    page.show_part("library")
    walk.until(lambda: page.library.folder_line.isVisible())
    page.library.folder_line.button.click()
    walk.until(lambda: page.folder.field.isVisible())


def enter(page: ModelsPage, walk: Walk, target: Path) -> None:
    """Name a folder, and wait until it was looked at."""
    page.folder.field.setText(str(target))
    walk.until(lambda: page.folder.actions.main.isEnabled() or page.folder.notice.isVisible())


def test_the_models_move_to_another_folder(page: ModelsPage, walk: Walk, folder: Path, place: Path) -> None:
    LastUsed(page.search.services.last_used).used(folder / "drive" / "models" / "mill.gguf")
    ask(page, walk)
    line = page.library.folder_line
    assert line.path.toolTip() == str(folder / "drive" / "models")
    assert line.told.text().endswith("free")
    assert page.folder.field.hasFocus()
    assert not page.folder.actions.main.isEnabled()
    target = folder / "neu é" / "models"
    enter(page, walk, target)
    assert page.folder.actions.main.text() == "Move"
    assert not target.exists()
    walk.qtbot.keyClick(page.folder.field, Qt.Key.Key_Return)
    walk.until(lambda: page.folder.title.text() == "The models have moved")
    assert Place.read(place) == Place(target, True)
    walk.until(lambda: line.path.toolTip() == str(target))
    assert {path.name for path in target.glob("*.gguf")} == {"水車.gguf", "mill.gguf"}
    assert not (folder / "drive" / "models").exists()
    assert sorted(titles(page)) == ["mill", "水車"]
    assert page.library.rows.row(page.library.rows.number_of("mill")).note == "last used today"
    page.folder.actions.main.click()
    walk.until(lambda: page.model.isVisible())


def test_downloads_rest_while_the_models_move_and_then_go_on_there(
    page: ModelsPage, walk: Walk, folder: Path, hub: HubServer, elsewhere: None, held: threading.Event
) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(LARGE / 4))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["downloading"])
    ask(page, walk)
    enter(page, walk, folder / "new")
    assert page.folder.actions.main.text() == "Pause them and move"
    page.folder.actions.main.click()
    assert page.mover.moving
    walk.until(lambda: page.mover.total)
    assert page.desk.running == ()
    assert page.library.folder_line.button.text() == "Show"
    assert page.folder.actions.progress.isVisible()
    assert not page.folder.field.isEnabled()
    page.desk.resume(next(iter(page.desk.items)))
    walk.until(lambda: "being moved" in page.downloads.trouble.line.sentence)
    held.set()
    walk.until(lambda: not page.mover.moving)
    walk.until(lambda: (folder / "new" / "labs" / "Other-7B-GGUF").is_dir())
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["done"])
    assert not (folder / "drive" / "models").exists()


def test_what_cannot_be_is_refused_before_anything_moves(
    page: ModelsPage, walk: Walk, folder: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("Dear")
    ask(page, walk)
    for target, words in (
        (folder / "full", "is not empty"),
        (folder / "drive" / "models" / "in", "inside the models folder itself"),
        (folder / "drive" / "models", "already"),
        (Path("beside"), "the whole path"),
    ):
        page.folder.field.setText(str(target))
        walk.until(lambda words=words: words in page.folder.notice.sentence)
        assert not page.folder.actions.main.isEnabled()
    monkeypatch.setattr(moving, "MARGIN", 1 << 60)
    page.folder.field.setText(str(folder / "new"))
    walk.until(lambda: "too little" in page.folder.notice.sentence)
    assert not page.folder.actions.main.isEnabled()
    page.folder.set_folder(folder / "full")
    assert page.folder.target == folder / "full" / "Millstream models"
    page.folder.actions.quiet[0].click()
    walk.until(lambda: page.model.isVisible())


def test_a_move_that_fails_says_why_and_the_old_folder_stays(
    page: ModelsPage, walk: Walk, folder: Path, place: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(page, walk)
    enter(page, walk, folder / "new")
    (folder / "new").write_text("in the way")
    page.folder.actions.main.click()
    walk.until(lambda: "is a file" in page.folder.notice.sentence)
    assert Place.read(place).models == folder / "drive" / "models"
    assert sorted(titles(page)) == ["mill", "水車"]


def test_a_move_that_is_stopped_is_offered_at_the_next_start(
    window: Window,
    page: ModelsPage,
    walk: Walk,
    folder: Path,
    place: Path,
    elsewhere: None,
    held: threading.Event,
    open_window: Open,
) -> None:
    ask(page, walk)
    enter(page, walk, folder / "new")
    page.folder.actions.main.click()
    walk.until(lambda: page.mover.done)
    page.folder.actions.main.click()
    walk.until(lambda: not page.mover.moving and page.cut.isVisible())
    assert "was cut off" in page.cut.notice.sentence
    window.close()
    second = open_window().models
    second.show()
    walk.until(lambda: second.page.cut.isVisible())
    assert Place.read(place).models == folder / "drive" / "models"
    held.set()
    second.page.cut.on_button.click()
    walk.until(lambda: second.page.folder.title.text() == "The models have moved")
    walk.until(lambda: not second.page.cut.isVisible())
    assert Place.read(place) == Place(folder / "new", True)
    assert not (folder / "drive" / "models").exists()


def test_what_was_left_behind_is_deleted_or_left(
    page: ModelsPage, walk: Walk, folder: Path, place: Path, library: Library
) -> None:
    for button, there in ((page.cut.leave_button, True), (page.cut.on_button, False)):
        shutil.rmtree(folder / "new", ignore_errors=True)
        shutil.copytree(library.root, folder / "new")
        Place(folder / "new", True, leaving=library.root).write(place)
        page.shelf.refresh()
        walk.until(lambda: page.cut.isVisible())
        assert "were not all deleted" in page.cut.notice.sentence
        button.click()
        walk.until(lambda: Place.read(place) == Place(folder / "new", True))
        walk.until(lambda: not page.cut.isVisible())
        assert library.root.exists() == there


def test_a_drive_that_is_gone_is_told_and_looked_for_again(
    window: Window, page: ModelsPage, walk: Walk, folder: Path, hub: HubServer
) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(LARGE / 20))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: page.desk.running)
    page.desk.pause(next(iter(page.desk.items)))
    walk.until(lambda: not page.desk.running)
    (folder / "drive").rename(folder / "unplugged")
    page.show_part("library")
    walk.until(lambda: page.library.away.isVisible())
    assert page.library.away.title.text() == "The drive with the models is not there"
    assert not page.library.list.isVisible() and not page.library.empty.isVisible()
    page.show_part("downloads")
    assert page.downloads.away.isVisible() and not page.downloads.empty.isVisible()
    page.downloads.away.again_button.click()
    walk.until(lambda: not page.tasks.busy)
    assert page.downloads.away.isVisible()
    outside = write_tiny_chat(folder / "outside.gguf", seed=4)
    window.chat.open(str(outside))
    walk.until(lambda: window.chat.loaded is not None)
    (folder / "unplugged").rename(folder / "drive")
    page.downloads.away.again_button.click()
    walk.until(lambda: not page.downloads.away.isVisible())
    walk.until(lambda: [item.state for item in page.desk.items.values()] == ["paused"])
    assert sorted(titles(page)) == ["mill", "水車"]


def test_a_start_without_the_drive_has_its_downloads_once_it_is_there(
    folder: Path, library: Library, hub: HubServer, open_window: Open, walk: Walk, window: Window
) -> None:
    hub.fault(f"{OTHER}/Other-Q4_K_M.gguf", Slow(LARGE / 20))
    walk.download(OTHER, "Q4_K_M")
    walk.until(lambda: window.models.desk.running)
    window.close()
    (folder / "drive").rename(folder / "unplugged")
    second = open_window().models
    second.show_downloads()
    walk.until(lambda: second.page.downloads.away.isVisible())
    assert second.desk.items == {}
    (folder / "unplugged").rename(folder / "drive")
    second.page.downloads.away.again_button.click()
    walk.until(lambda: len(second.desk.items) == 1)


def test_another_folder_is_chosen_for_a_drive_that_is_lost(
    page: ModelsPage, walk: Walk, folder: Path, place: Path
) -> None:
    shutil.rmtree(folder / "drive")
    other = folder / "other"
    other.mkdir()
    write_tiny_chat(other / "there.gguf")
    page.show_part("library")
    walk.until(lambda: page.library.away.isVisible())
    page.library.away.elsewhere_button.click()
    walk.until(lambda: page.folder.field.isVisible())
    assert not page.folder.actions.main.isEnabled()
    page.folder.field.setText(str(other))
    page.folder.actions.main.click()
    walk.until(lambda: titles(page) == ["there"])
    assert Place.read(place) == Place(other, True)
    walk.download(TINY, "Q8_0")
    walk.until(lambda: (other / "labs").is_dir())


class TestTheEnvironment:
    @pytest.fixture
    def place(self) -> None:
        return None

    @pytest.fixture
    def library(self, folder: Path) -> Library:
        return Library(folder / "models")

    def test_it_says_where_the_models_are_and_so_they_are_not_moved(self, page: ModelsPage, walk: Walk) -> None:
        page.show_part("library")
        walk.until(lambda: page.library.folder_line.isVisible())
        page.library.folder_line.button.click()
        walk.until(lambda: page.folder.notice.isVisible())
        assert page.folder.notice.sentence.startswith("MILLSTREAM_HOME says where the models are")
        assert not page.folder.field.isVisible()
        assert page.folder.actions.main.text() == "Close"


def test_a_folder_that_can_only_be_read_keeps_its_list(page: ModelsPage) -> None:
    away: Away = page.library.away
    page.show_part("library")
    away.show_standing(Standing(Path("/x"), "unwritable", "The models folder /x can only be read."))
    assert away.isVisible() and page.library.list.isVisible()
    away.show_standing(Standing(Path("/x")))
    assert not away.isVisible()


def test_it_is_reached_with_the_keyboard(page: ModelsPage, walk: Walk, folder: Path) -> None:
    page.show_part("library")
    walk.until(lambda: page.library.folder_line.isVisible() and titles(page))
    page.library.list.setFocus()
    walk.qtbot.keyClick(page.library.list, Qt.Key.Key_Tab)
    assert QApplication.focusWidget() is page.library.folder_line.button
    walk.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Space)
    walk.until(lambda: page.folder.field.hasFocus())
    enter(page, walk, folder / "new")
    for wanted in (page.folder.browse, page.folder.actions.quiet[0], page.folder.actions.main):
        walk.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        assert QApplication.focusWidget() is wanted


@pytest.mark.parametrize("width", [420, 760])
def test_nothing_sticks_out(window: Window, page: ModelsPage, walk: Walk, folder: Path, width: int) -> None:
    window.resize(width, 640)
    ask(page, walk)
    enter(page, walk, folder / ("a long name " * 8) / "new")
    walk.qtbot.wait(20)
    assert_nothing_sticks_out(page)
    (folder / "drive").rename(folder / "unplugged")
    page.show_part("library")
    walk.until(lambda: page.library.away.isVisible())
    walk.qtbot.wait(20)
    assert window.width() == width
    assert_nothing_sticks_out(page)
