"""Opening another model from the window: a file, a checkpoint's folder, the starter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.requests import Answer, Report
from app.window import Window
from engine import Cancel, ModelFileError, Text
from tests.gui.conftest import MakeWindow
from tests.gui.silent_engine import SilentEngine, load_silent

OpenModel = Callable[[str], None]


class Loader:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, model: str, report: Report, cancel: Cancel) -> SilentEngine:
        self.asked.append(model)
        if "broken" in model:
            raise ModelFileError("broken.gguf is empty. Download it again.")
        return load_silent(model, report, cancel)


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def window(make_window: MakeWindow, loader: Loader, qtbot: QtBot) -> Window:
    """Ready, over an engine that says nothing."""
    window = make_window(loader)
    window.chat.load("silent")
    wait_for(window, qtbot, "ready")
    return window


def wait_for(window: Window, qtbot: QtBot, state: str) -> None:
    qtbot.waitUntil(lambda: window.chat.state == state)


def dialog_of(window: Window) -> QFileDialog:
    return next(dialog for dialog in window.findChildren(QFileDialog) if dialog.isVisible())


def test_a_model_file_is_chosen_and_loaded(window: Window, loader: Loader, folder: Path, qtbot: QtBot) -> None:
    path = folder / "水車.gguf"
    path.write_bytes(b"GGUF")
    window.model_bar.open_menu.file.trigger()
    dialog = dialog_of(window)
    dialog.setDirectory(str(folder))
    dialog.selectFile(path.name)
    dialog.accept()
    qtbot.waitUntil(lambda: loader.asked == ["silent", str(path)])
    wait_for(window, qtbot, "ready")


def test_the_folder_of_a_checkpoint_is_chosen_and_loaded(
    window: Window, loader: Loader, folder: Path, qtbot: QtBot
) -> None:
    checkpoint = folder / "Mill-0.6B"
    checkpoint.mkdir()
    window.model_bar.open_menu.folder.trigger()
    dialog = dialog_of(window)
    dialog.setDirectory(str(folder))
    dialog.selectFile(checkpoint.name)
    dialog.accept()
    qtbot.waitUntil(lambda: loader.asked == ["silent", str(checkpoint)])
    wait_for(window, qtbot, "ready")


def test_a_dialog_that_is_closed_changes_nothing(window: Window, loader: Loader, qtbot: QtBot) -> None:
    window.model_bar.open_menu.file.trigger()
    dialog_of(window).reject()
    qtbot.wait(20)
    assert window.chat.state == "ready"
    assert loader.asked == ["silent"]


def test_the_way_back_to_the_starter_is_in_the_same_menu(window: Window, loader: Loader, qtbot: QtBot) -> None:
    window.model_bar.open_menu.starter.trigger()
    qtbot.waitUntil(lambda: loader.asked == ["silent", "starter"])


def test_another_model_stops_the_reply_and_goes_on_with_the_conversation(window: Window, qtbot: QtBot) -> None:
    window.chat.send("What is a mill?")
    window.bridge.notice.emit(Answer(window.chat.session.last_request_id, Text("A machine")))
    window.chat.open("seeing")
    assert window.start.isVisible()
    assert not window.model_bar.models_button.isEnabled()
    wait_for(window, qtbot, "ready")
    assert window.model_bar.models_button.isEnabled()
    assert window.conversation.isVisible()
    assert "Stopped" in window.conversation.reply.status
    assert [message.content for message in window.chat.session.messages()] == ["What is a mill?", "A machine"]
    window.chat.send("Go on.")
    assert window.chat.state == "answering"


def test_a_model_that_cannot_be_loaded_leaves_the_conversation_for_the_next_one(window: Window, qtbot: QtBot) -> None:
    window.chat.send("What is a mill?")
    window.bridge.notice.emit(Answer(window.chat.session.last_request_id, Text("A machine")))
    window.chat.open("broken.gguf")
    wait_for(window, qtbot, "failed")
    assert window.start.isVisible()
    assert window.start.sentence.text() == "broken.gguf is empty. Download it again."
    window.start.open_menu.chosen.emit("silent")
    wait_for(window, qtbot, "ready")
    assert window.conversation.isVisible()
    assert window.conversation.reply.text == "A machine"


def test_one_that_is_cancelled_leaves_it_too(window: Window, qtbot: QtBot) -> None:
    window.chat.send("What is a mill?")
    window.chat.open("wait")
    window.start.cancel_button.click()
    wait_for(window, qtbot, "no model")
    assert window.start.open_button.isVisible()
    assert window.chat.session.exchanges
