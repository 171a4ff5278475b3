"""Pictures beside the message being written: how they come, wait, go, and are refused."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as pillow
from PySide6.QtCore import QMimeData, Qt, QTimer, QUrl
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.composer import Composer
from app.look import Appearance
from engine import Settings
from tests.gui.conftest import Heartbeat
from tests.gui.dropped import files, png, wait_until_read

SHORT = Settings(temperature=0, max_tokens=4)


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


def test_tab_goes_through_the_pictures_before_the_text(composer: Composer, qtbot: QtBot) -> None:
    for color in ("red", "blue"):
        composer.pictures.add([png(color)])
    wait_until_read(composer, qtbot)
    first, second = (square.remove_button for square in composer.pictures.squares)
    composer.activateWindow()
    qtbot.waitUntil(lambda: first.isVisible() and composer.isActiveWindow())
    first.setFocus()
    reached = []
    for _ in range(5):
        reached.append(QApplication.focusWidget())
        qtbot.keyClick(reached[-1], Qt.Key.Key_Tab)
    assert reached == [first, second, composer.attach_button, composer.draft, composer.send_button]


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
