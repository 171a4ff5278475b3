"""Files that are sent to do harm, or came to harm: a picture or one sentence, in bounded memory and time."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import images
from engine.vision.images import open_image
from tests.engine.vision.pictures import png, scene, smooth, written

ROOT = Path(__file__).resolve().parents[3]
# Pillow's notes on damaged metadata, which say nothing against the picture.
NOTES = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


def test_pictures_are_not_decoded_past_the_limit() -> None:
    data = written(Image.fromarray(scene(50, 40)), "PNG")
    assert open_image(data, max_pixels=2000).shape == (50, 40, 3)
    with pytest.raises(ImageError, match=r"^photo\.png has 40 × 50 pixels, more than the 1999 "):
        open_image(data, name="photo.png", max_pixels=1999)


def webp(width: int, height: int) -> bytes:
    extended = struct.pack("<I", 0) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    picture = written(Image.new("RGB", (4, 4)), "WEBP", lossless=True)[12:]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + extended + picture
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif(width: int, height: int) -> bytes:
    data = bytearray(written(Image.new("P", (4, 4)), "GIF"))
    at = data.index(b",") + 5  # the first frame's own size, which may pass the screen's
    data[at : at + 4] = struct.pack("<HH", width, height)
    return bytes(data)


BOMBS: dict[str, bytes] = {
    "png": png(100_000, 100_000, 8, 2, b"\0" * 100),
    "png of 2^31": png(2**31 - 1, 2**31 - 1, 8, 2, b"\0" * 100),
    "jpeg": written(smooth(16, 16), "JPEG").replace(struct.pack(">HH", 16, 16), b"\xff\xff\xff\xff", 1),
    "progressive jpeg": written(smooth(16, 16), "JPEG", progressive=True).replace(
        struct.pack(">HH", 16, 16), b"\xff\xff\xff\xff", 1
    ),
    "webp": webp(65_535, 65_535),
    "webp within Pillow's own limit": webp(16_000, 11_000),
    "gif": gif(65_535, 65_535),
    "gif within Pillow's own limit": gif(16_000, 11_000),
    "bmp": written(Image.new("RGB", (4, 4)), "BMP")[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + b"\0" * 60,
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux tells it")
def test_a_decompression_bomb_is_refused_before_it_is_decoded(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[kind])
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from engine.errors import ImageError; from engine.vision.images import open_image\n"
        "import PIL.Image, PIL.ImageChops, PIL.ImageMath, PIL.ImageOps\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "try: open_image(Path(sys.argv[1]))\n"
        "except ImageError as error: print(error); print(peak() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    sentence, kilobytes = run.stdout.splitlines()
    assert sentence.startswith("bomb ")
    assert int(kilobytes) < 60_000


def test_a_jpeg_somewhat_too_large_is_decoded_at_half_its_size() -> None:
    image = smooth(101, 160)
    data = written(image, "JPEG", quality=95)
    pixels = open_image(data, max_pixels=160 * 101 - 1)
    assert pixels.shape == (51, 80, 3)
    half = np.asarray(image.resize((80, 51), Image.Resampling.BOX)).astype(int)
    assert np.abs(pixels.astype(int) - half).mean() < 2
    with pytest.raises(ImageError, match="160 × 101 pixels"):
        open_image(data, max_pixels=160 * 101 // 2 - 1)


def test_a_jpeg_of_endless_scans_is_refused() -> None:
    data = written(smooth(64, 64), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    assert open_image(data[:-2] + last * 100 + data[-2:]).shape == (64, 64, 3)
    with pytest.raises(ImageError, match="scans"):
        open_image(data[:-2] + last * 130 + data[-2:])


def kinds() -> dict[str, bytes]:
    image = Image.fromarray(scene(40, 30))
    return {
        "PNG": written(image, "PNG"),
        "JPEG": written(image, "JPEG"),
        "progressive JPEG": written(image, "JPEG", progressive=True),
        "WEBP": written(image, "WEBP"),
        "lossless WEBP": written(image, "WEBP", lossless=True),
        "GIF": written(image.quantize(32), "GIF"),
        "BMP": written(image, "BMP"),
    }


@pytest.mark.parametrize("kind", kinds())
def test_a_truncated_file_is_an_error_that_names_it(kind: str, folder: Path) -> None:
    data = kinds()[kind]
    path = folder / "cut.picture"
    for length in {1, 2, 8, 20, 40, *range(60, len(data) - 8, len(data) // 40)}:
        path.write_bytes(data[:length])
        with pytest.raises(ImageError, match=r"^cut\.picture "):
            open_image(path)


@NOTES
@pytest.mark.parametrize("kind", kinds())
def test_damaged_bytes_give_a_picture_or_an_error(kind: str) -> None:
    random = np.random.default_rng(7)
    data = kinds()[kind]
    refused = 0
    for _ in range(150):
        damaged = np.frombuffer(data, np.uint8).copy()
        where = random.integers(0, len(damaged) if random.random() < 0.5 else 64, random.integers(1, 6))
        damaged[where] = random.integers(0, 256, len(where), dtype=np.uint8)
        try:
            pixels = open_image(damaged.tobytes(), max_pixels=1_000_000)
        except ImageError as error:
            refused += 1
            assert str(error).startswith("The picture ")
        else:
            assert pixels.ndim == 3 and pixels.shape[2] == 3 and 0 < pixels.size <= 3_000_000
    assert refused > 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_text("no picture"), "not a picture of a known kind"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0" * 4096), "not a picture of a known kind"),
        (lambda path: path.write_bytes(b"II*\0" + b"\0" * 100), "not a picture of a known kind"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: None, "There is no file"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(
    make: Callable[[Path], object], sentence: str, folder: Path
) -> None:
    path = folder / "holiday.png"
    make(path)
    with pytest.raises(ImageError, match=sentence) as caught:
        open_image(path)
    assert "holiday.png" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are Unix's")
def test_a_pipe_is_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    with pytest.raises(ImageError, match=r"pipe\.png is not an ordinary file"):
        open_image(folder / "pipe.png")


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        open_image(Path("a\0b.png"))


def test_a_file_of_more_bytes_than_a_picture_has_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "long.png"
    path.write_bytes(kinds()["PNG"])
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    with pytest.raises(ImageError, match=r"^long\.png has 101 bytes, more than the 100 bytes"):
        open_image(path)


@NOTES
@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0" + b"\xff" * 60000])
def test_exif_that_is_damaged_or_huge_says_nothing_against_the_picture(exif: bytes) -> None:
    data = written(smooth(24, 40), "JPEG")
    plain = open_image(data)
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    np.testing.assert_array_equal(open_image(data[:2] + segment * 40 + data[2:]), plain)
