"""Pictures in the window: how they are shown, what goes to the engine, and what a blind model says."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.local_engine import load_local
from app.message_view import MessageView
from app.requests import Answer
from app.thumbnail import ALONE, Thumbnail
from app.window import Window
from engine import Budgets, Engine, Finished, Image, Message, Settings, Text, Timings, Usage
from tests.gui.conftest import MakeWindow
from tests.gui.dropped import files, png, wait_until_read
from tests.gui.silent_engine import load_silent
from tests.tiny_chat import write_tiny_chat
from tests.tiny_seeing import write_seeing

SHORT = Settings(temperature=0, max_tokens=4)


def ready(window: Window, qtbot: QtBot, model: Path | str) -> None:
    window.chat.load(str(model))
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=30_000)


def pictures_of(view: MessageView) -> list[str]:
    return [thumbnail.attachment.image.name for thumbnail in view.findChildren(Thumbnail) if thumbnail.isVisible()]


def test_a_picture_may_be_dropped_anywhere_in_the_window(make_window: MakeWindow, qtbot: QtBot, mill: Path) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "seeing")
    data = files(mill)
    at, action = QPointF(300, 200), Qt.DropAction.MoveAction | Qt.DropAction.CopyAction
    keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(at.toPoint(), action, data, *keys)
    QApplication.sendEvent(window, enter)
    assert enter.isAccepted()
    assert enter.dropAction() == Qt.DropAction.CopyAction, "or the file manager deletes it"
    QApplication.sendEvent(window, QDropEvent(at, action, data, *keys))
    wait_until_read(window.composer, qtbot)
    assert len(window.composer.pictures.attachments) == 1
    text = QMimeData()
    text.setText("A mill.")
    enter = QDragEnterEvent(at.toPoint(), action, text, *keys)
    QApplication.sendEvent(window, enter)
    assert not enter.isAccepted()


def test_the_picture_stands_above_the_text_of_the_persons_message(
    make_window: MakeWindow, qtbot: QtBot, mill: Path
) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "seeing")
    window.composer.take(files(mill))
    wait_until_read(window.composer, qtbot)
    window.composer.draft.setPlainText("What is it?")
    window.composer.send_button.click()
    qtbot.wait(20)
    asked = window.conversation.findChildren(MessageView)[0]
    (thumbnail,) = asked.findChildren(Thumbnail)
    assert thumbnail.mapTo(asked, thumbnail.rect().bottomLeft()).y() < asked.body.y()
    assert thumbnail.size().boundedTo(ALONE) == thumbnail.size()
    middle = thumbnail.grab().toImage()
    assert middle.pixelColor(middle.rect().center()) == QColor("red")


@pytest.mark.parametrize("width", [420, 640, 1400])
def test_no_picture_sticks_out_at_any_width(make_window: MakeWindow, qtbot: QtBot, width: int) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "seeing")
    for sizes in (((5000, 20),), ((900, 600), (20, 5000), (3, 3), (300, 300), (600, 500))):
        window.composer.pictures.add(png(width=w, height=h) for w, h in sizes)
        wait_until_read(window.composer, qtbot)
        if window.chat.state == "ready":
            window.composer.send_button.click()
    window.resize(width, 600)
    qtbot.wait(50)
    thumbnails = [thumbnail for thumbnail in window.findChildren(Thumbnail) if thumbnail.isVisible()]
    assert len(thumbnails) == 6
    for thumbnail in thumbnails:
        left = thumbnail.mapTo(window, thumbnail.rect().topLeft()).x()
        assert left >= 0 and left + thumbnail.width() <= window.width() == width


def test_a_model_that_cannot_see_says_so_before_anything_is_sent_and_nothing_is_lost(
    make_window: MakeWindow, qtbot: QtBot, mill: Path
) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "blind")
    assert not window.model_bar.sees
    window.composer.draft.setPlainText("What is it?")
    window.composer.take(files(mill))
    wait_until_read(window.composer, qtbot)
    assert window.composer.notice.sentence.startswith("SmolLM2-135M-Instruct cannot see pictures")
    assert not window.composer.send_button.isEnabled()
    qtbot.keyClick(window.composer.draft, Qt.Key.Key_Return)
    assert window.chat.session.exchanges == []

    ready(window, qtbot, "seeing")
    assert window.model_bar.sees
    assert window.composer.notice.isHidden()
    assert window.composer.draft.toPlainText() == "What is it?"
    window.composer.send_button.click()
    (message,) = window.chat.session.messages()
    assert message == Message("user", "What is it?", images=(Image(mill.read_bytes(), mill.name),))


def test_without_the_picture_a_model_that_cannot_see_answers(make_window: MakeWindow, qtbot: QtBot, mill: Path) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "blind")
    window.composer.draft.setPlainText("What is it?")
    window.composer.take(files(mill))
    window.composer.pictures.squares[0].remove_button.click()
    assert window.composer.notice.isHidden()
    window.composer.send_button.click()
    assert window.chat.session.messages() == (Message("user", "What is it?"),)


def test_a_conversation_with_pictures_does_not_go_on_with_a_model_that_cannot_see(
    make_window: MakeWindow, qtbot: QtBot, mill: Path
) -> None:
    window = make_window(load_silent)
    ready(window, qtbot, "seeing")
    window.composer.take(files(mill))
    wait_until_read(window.composer, qtbot)
    window.composer.send_button.click()
    reply = partial(Answer, window.chat.session.last_request_id)
    window.bridge.notice.emit(reply(Text("A mill.")))
    window.bridge.notice.emit(reply(Finished("stop", Usage(3, 0, 2), Timings(0.1, 0.1, 0.1, 30.0, 20.0))))
    window.bridge.cancel()
    window.chat.open("blind")
    qtbot.waitUntil(lambda: window.chat.state == "ready")
    assert window.conversation.isVisible()
    assert "cannot see the pictures of this chat" in window.composer.notice.sentence
    window.composer.draft.setPlainText("And how old?")
    assert not window.composer.send_button.isEnabled()
    window.chat.new_chat()
    assert window.composer.notice.isHidden()
    assert window.composer.send_button.isEnabled()


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("see")
    write_seeing(folder)
    return folder / "tiny.gguf"


def test_a_real_model_sees_the_picture_in_its_turn_and_in_the_next(
    make_window: MakeWindow, qtbot: QtBot, seeing: Path, mill: Path
) -> None:
    budgets = Budgets(threads=1, context=256)
    window = make_window(partial(load_local, budgets=budgets))
    ready(window, qtbot, seeing)
    assert window.model_bar.sees
    window.chat.settings = SHORT
    window.composer.take(files(mill))
    wait_until_read(window.composer, qtbot)
    told: list[Message] = []
    replies = []
    with Engine.load(seeing, budgets) as engine:
        for text, images in (("?", (Image(mill.read_bytes(), mill.name),)), ("!", ())):
            window.composer.draft.setPlainText(text)
            window.composer.send_button.click()
            qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=30_000)
            assert window.conversation.reply.error == ""
            exchange = window.chat.session.exchanges[-1]
            told.append(Message("user", text, images=images))
            alone = [event for event in engine.chat(told, SHORT)]
            assert exchange.reply == "".join(event.text for event in alone if isinstance(event, Text))
            assert exchange.finished.usage.prompt_tokens == alone[-1].usage.prompt_tokens
            replies.append(exchange.reply)
            told.append(Message("assistant", exchange.reply))
    assert replies[0].strip(), "a reply that is told again"
    assert exchange.finished.usage.cached_tokens > 10


def test_trying_again_asks_with_the_same_picture(
    make_window: MakeWindow, qtbot: QtBot, seeing: Path, mill: Path
) -> None:
    """A context too small for the picture is an error that shows a way on."""
    window = make_window(partial(load_local, budgets=Budgets(threads=1, context=256)))
    ready(window, qtbot, seeing)
    window.chat.settings = SHORT
    window.composer.take(files(mill))
    wait_until_read(window.composer, qtbot)
    window.composer.send_button.click()
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=30_000)
    before = window.chat.session.exchanges[-1]
    window.chat.retry()
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=30_000)
    (after,) = window.chat.session.exchanges
    assert after is not before
    assert after.pictures == before.pictures
    assert after.reply == before.reply
    asked = next(view for view in window.conversation.findChildren(MessageView) if view.isVisible())
    assert pictures_of(asked) == [mill.name]


def test_a_model_file_without_a_tower_is_named_as_one_that_cannot_see(
    make_window: MakeWindow, qtbot: QtBot, folder: Path, mill: Path
) -> None:
    window = make_window()
    ready(window, qtbot, write_tiny_chat(folder / "tiny.gguf"))
    window.composer.take(files(mill))
    assert window.composer.notice.sentence == (
        "tiny cannot see pictures: open a model that can, or remove what you added."
    )
