"""Pictures in the window: how they come, how they are shown, what goes to the engine, and what a blind model says."""

from __future__ import annotations

import io
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as pillow
from PySide6.QtCore import QMimeData, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QColor, QDragEnterEvent, QDropEvent, QGuiApplication, QImage
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.composer import Composer
from app.local_engine import load_local
from app.look import Appearance
from app.message_view import MessageView
from app.requests import Answer
from app.thumbnail import ALONE, Thumbnail
from app.window import Window
from engine import Budgets, Engine, Finished, Image, Message, Settings, Text, Timings, Usage
from tests.gui.conftest import Heartbeat, MakeWindow
from tests.gui.silent_engine import load_silent
from tests.tiny_chat import write_tiny_chat
from tests.tiny_seeing import write_seeing

SHORT = Settings(temperature=0, max_tokens=4)


def png(color: str = "red", width: int = 60, height: int = 40) -> bytes:
    file = io.BytesIO()
    pillow.new("RGB", (width, height), color).save(file, "PNG")
    return file.getvalue()


def files(*paths: Path) -> QMimeData:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    return data


@pytest.fixture
def mill(folder: Path) -> Path:
    path = folder / "mill é.png"
    path.write_bytes(png())
    return path


@pytest.fixture
def composer(qtbot: QtBot, appearance: Appearance) -> Composer:
    """Shown, with a model that is ready."""
    composer = Composer(appearance.look)
    qtbot.addWidget(composer)
    composer.resize(700, 400)
    composer.show()
    qtbot.waitExposed(composer)
    composer.set_ready(True)
    return composer


def sent(composer: Composer) -> list[tuple[str, tuple[str, ...]]]:
    """Texts, and the pictures' names."""
    made: list[tuple[str, tuple[str, ...]]] = []
    composer.sent.connect(lambda text, pictures: made.append((text, tuple(p.image.name for p in pictures))))
    return made


def wait_until_read(composer: Composer, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not composer.pictures.reading)


def ready(window: Window, qtbot: QtBot, model: Path | str) -> None:
    window.chat.load(str(model))
    qtbot.waitUntil(lambda: window.chat.state == "ready", timeout=30_000)


def pictures_of(view: MessageView) -> list[str]:
    return [thumbnail.attachment.image.name for thumbnail in view.findChildren(Thumbnail) if thumbnail.isVisible()]


def test_a_pasted_file_becomes_a_thumbnail_and_goes_with_the_message(
    composer: Composer, qtbot: QtBot, mill: Path
) -> None:
    messages = sent(composer)
    assert composer.pictures.isHidden()
    QGuiApplication.clipboard().setMimeData(files(mill))
    composer.draft.paste()
    wait_until_read(composer, qtbot)
    assert composer.pictures.isVisible()
    assert [square.accessibleName() for square in composer.pictures.squares] == ["Picture: mill é.png"]
    assert composer.draft.toPlainText() == ""
    qtbot.keyClicks(composer.draft, "What is it?")
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert messages == [("What is it?", ("mill é.png",))]
    assert composer.pictures.isHidden()
    assert composer.pictures.squares == ()


@pytest.mark.parametrize("encoded", [True, False])
def test_a_pasted_picture_is_taken_whether_it_comes_as_a_file_would_or_as_pixels(
    composer: Composer, qtbot: QtBot, encoded: bool
) -> None:
    data = QMimeData()
    if encoded:
        data.setData("image/png", png("blue"))
    else:
        image = QImage(60, 40, QImage.Format.Format_ARGB32)
        image.fill(QColor("blue"))
        data.setImageData(image)
    QGuiApplication.clipboard().setMimeData(data)
    composer.draft.paste()
    wait_until_read(composer, qtbot)
    (attachment,) = composer.pictures.attachments
    assert (attachment.width, attachment.height) == (60, 40)
    assert attachment.preview[:3] == b"\0\0\xff"
    if encoded:
        assert attachment.image.data == png("blue")


def test_text_that_is_also_drawn_as_a_picture_is_pasted_as_text(composer: Composer) -> None:
    data = QMimeData()
    data.setText("cells of a table")
    data.setImageData(QImage(60, 40, QImage.Format.Format_RGB32))
    QGuiApplication.clipboard().setMimeData(data)
    composer.draft.paste()
    assert composer.draft.toPlainText() == "cells of a table"
    assert composer.pictures.squares == ()


def test_a_link_to_the_web_is_pasted_as_text(composer: Composer) -> None:
    data = QMimeData()
    data.setUrls([QUrl("https://example.org/mill.png")])
    data.setText("https://example.org/mill.png")
    QGuiApplication.clipboard().setMimeData(data)
    composer.draft.paste()
    assert composer.draft.toPlainText() == "https://example.org/mill.png"


def test_pictures_keep_their_order_and_each_can_be_removed(composer: Composer, qtbot: QtBot, folder: Path) -> None:
    messages = sent(composer)
    paths = [folder / f"{name}.png" for name in ("one", "two", "three")]
    for path in paths:
        path.write_bytes(png(width=400))
    composer.take(files(*paths))
    wait_until_read(composer, qtbot)
    button = composer.pictures.squares[1].remove_button
    assert button.accessibleName() == "Remove two.png"
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    composer.send_button.click()
    assert messages == [("", ("one.png", "three.png"))]


def test_a_message_waits_for_a_picture_that_is_still_being_read(composer: Composer, qtbot: QtBot, mill: Path) -> None:
    messages = sent(composer)
    composer.draft.setPlainText("What is it?")
    composer.take(files(mill))
    assert len(composer.pictures.squares) == 1
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert messages == []
    assert composer.hint == "The picture is still being read."
    wait_until_read(composer, qtbot)
    assert composer.hint == ""
    qtbot.keyClick(composer.draft, Qt.Key.Key_Return)
    assert messages == [("What is it?", ("mill é.png",))]


def test_what_is_removed_while_it_is_read_does_not_come_back(composer: Composer, qtbot: QtBot, mill: Path) -> None:
    composer.take(files(mill))
    composer.pictures.squares[0].remove_button.click()
    composer.take(files(mill))
    wait_until_read(composer, qtbot)
    assert len(composer.pictures.squares) == 1


def test_a_file_that_is_no_picture_is_one_sentence_and_takes_nothing_away(
    composer: Composer, qtbot: QtBot, mill: Path, folder: Path
) -> None:
    tale = folder / ("a-very-long-name-without-a-single-space-in-it" * 3 + ".txt")
    tale.write_text("Once upon a time there was a mill.")
    composer.draft.setPlainText("What is it?")
    composer.take(files(mill, tale))
    wait_until_read(composer, qtbot)
    assert composer.notice.isVisible()
    assert composer.notice.sentence.startswith(f"{tale.name} is not a picture of a known kind")
    assert composer.pictures.attachments[0].image.name == mill.name
    assert composer.draft.toPlainText() == "What is it?"
    assert composer.minimumSizeHint().width() < 420
    composer.send_button.click()
    assert composer.notice.isHidden()


def test_the_button_opens_a_dialog_whose_files_are_added(composer: Composer, qtbot: QtBot, mill: Path) -> None:
    qtbot.mouseClick(composer.attach_button, Qt.MouseButton.LeftButton)
    (dialog,) = composer.findChildren(QFileDialog)
    dialog.setDirectory(str(mill.parent))
    dialog.selectFile(mill.name)
    dialog.accept()
    wait_until_read(composer, qtbot)
    assert [attachment.image.data for attachment in composer.pictures.attachments] == [mill.read_bytes()]


def test_many_pictures_leave_room_for_the_text(composer: Composer, qtbot: QtBot) -> None:
    heights = []
    for count in (1, 12, 30):
        composer.pictures.add([png()] * count)
        wait_until_read(composer, qtbot)
        qtbot.wait(20)
        heights.append(composer.pictures.height())
    assert heights[0] < heights[1] == heights[2] < 160


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
    assert message == Message("user", "What is it?", (Image(mill.read_bytes(), mill.name),))


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
            told.append(Message("user", text, images))
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


def test_the_window_lives_while_a_large_photograph_is_read(
    composer: Composer, qtbot: QtBot, folder: Path, heartbeat: Heartbeat
) -> None:
    """20 megapixels."""
    colours = np.random.default_rng(0).integers(0, 256, (365, 548, 3), np.uint8)
    path = folder / "photograph.jpg"
    pillow.fromarray(colours).resize((5480, 3650)).save(path, quality=92)
    stalls: list[float] = []
    last = began = time.perf_counter()

    def beat() -> None:
        nonlocal last
        now = time.perf_counter()
        stalls.append(now - last)
        last = now

    timer = QTimer(interval=1, timerType=Qt.TimerType.PreciseTimer)
    timer.timeout.connect(beat)
    timer.start()
    beats = heartbeat.beats
    composer.take(files(path))
    wait_until_read(composer, qtbot)
    beat()
    timer.stop()
    (photograph,) = composer.pictures.attachments
    assert (photograph.width, photograph.height) == (5480, 3650)
    assert heartbeat.beats - beats > 20
    # A machine that does much else may be slow to let the window have its turn.
    assert max(stalls) < max(0.05, (last - began) / 3)
