"""Pictures as they are attached: whole for the engine, small for the eye."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image as pillow

from app.attachment import PREVIEW_SIDE, attach
from engine import ImageError


def encoded(width: int, height: int, form: str = "PNG", **options: object) -> bytes:
    picture = pillow.new("RGB", (width, height), "red")
    picture.paste("blue", (0, 0, width, height // 2))
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("size", "preview"),
    [((1200, 800), (480, 320)), ((40, 30), (40, 30)), ((1, 1), (1, 1)), ((20_000, 20), (480, 1))],
)
def test_a_picture_is_kept_whole_and_shown_small(size: tuple[int, int], preview: tuple[int, int]) -> None:
    data = encoded(*size)
    made = attach(data, "mill.png")
    assert (made.image.data, made.image.name) == (data, "mill.png")
    assert (made.width, made.height) == size
    assert (made.preview_width, made.preview_height) == preview
    assert max(preview) <= PREVIEW_SIDE
    assert len(made.preview) == 3 * preview[0] * preview[1]


def test_a_picture_is_shown_as_its_exif_turns_it(folder: Path) -> None:
    exif = pillow.Exif()
    exif[274] = 6  # the right side is up
    path = folder / "水車 é.jpg"
    path.write_bytes(encoded(80, 40, "JPEG", exif=exif))
    made = attach(path)
    assert made.image.name == "水車 é.jpg"
    assert (made.width, made.height) == (40, 80)
    left, right = made.preview[:3], made.preview[3 * 39 : 3 * 40]
    assert left[0] > 200 and left[2] < 60
    assert right[2] > 200 and right[0] < 60


@pytest.mark.parametrize("name", ["empty.png", "text.png", "cut.png", "folder.png", "absent.png"])
def test_what_the_engine_would_refuse_is_refused_at_once_by_name(folder: Path, name: str) -> None:
    path = folder / name
    if name == "folder.png":
        path.mkdir()
    elif name != "absent.png":
        contents = {"empty.png": b"", "text.png": b"A mill.", "cut.png": encoded(90, 90)[:100]}
        path.write_bytes(contents[name])
    with pytest.raises(ImageError, match=name):
        attach(path)
