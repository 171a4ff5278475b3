"""The states of the window that have pictures in them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from PIL import Image as pillow
from PIL import ImageDraw

from app.attachment import Attachment, attach
from app.window import Window
from engine.types import Text
from tests.gui.states import end, event, pump, ready


def drawn(width: int, height: int, name: str, sky: str = "#a9c7dc") -> Attachment:
    """A landscape of a kind."""
    picture = pillow.new("RGB", (width, height), sky)
    pen = ImageDraw.Draw(picture)
    pen.ellipse((width * 0.7, height * 0.1, width * 0.85, height * 0.1 + width * 0.15), fill="#f2d16b")
    pen.polygon([(0, height), (width * 0.35, height * 0.35), (width * 0.75, height)], fill="#5d7f63")
    pen.polygon([(width * 0.4, height), (width * 0.75, height * 0.5), (width, height)], fill="#7fa07a")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return attach(file.getvalue(), name)


def add(window: Window, *attachments: Attachment) -> None:
    window.composer.pictures.add(attachment.image.data for attachment in attachments)
    while window.composer.pictures.reading:
        pump(0.01)


THREE = (
    drawn(1200, 800, "mill.jpg"),
    drawn(600, 1000, "wheel.png", "#e3c9b0"),
    drawn(40, 30, "icon.png"),
)


def seeing(window: Window) -> None:
    window.chat.load("seeing")
    pump(0.2)


def composing(window) -> None:
    seeing(window)
    add(window, *THREE)
    window.composer.draft.setPlainText("What do these have in common?")


def reading(window) -> None:
    seeing(window)
    add(window, THREE[0])
    window.composer.pictures.add([drawn(6000, 4000, "large.png").image.data])


def picture_asked(window) -> None:
    seeing(window)
    window.chat.send("What is in this picture?", THREE[:1])
    event(window, Text("A mountain under a wide sky, and the sun beside it."))
    pump()
    end(window, tokens=14)
    window.chat.send("And these?", THREE * 2)
    event(window, Text("More of the same."))
    pump()
    end(window, tokens=5)


def only_a_picture(window) -> None:
    seeing(window)
    window.chat.send("", THREE[:1])
    event(window, Text("A mountain."))
    pump()
    end(window, tokens=4)


def blind(window) -> None:
    ready(window)
    add(window, THREE[0])
    window.composer.draft.setPlainText("What is in this picture?")


def refused(window) -> None:
    seeing(window)
    window.composer.pictures.add([b"PK" * 200])
    pump(0.3)


def smallest_composing(window) -> None:
    window.resize(window.minimumSize())
    seeing(window)
    add(window, *THREE * 3)
    window.composer.pictures.add([b"PK" * 200])
    pump(0.3)


def picture_states() -> Iterator[tuple[str, Callable[[Window], None]]]:
    yield "30-composing", composing
    yield "31-reading", reading
    yield "32-picture-asked", picture_asked
    yield "33-only-a-picture", only_a_picture
    yield "34-blind", blind
    yield "35-refused", refused
    yield "36-smallest-composing", smallest_composing
