"""Pictures from their files: what people send, and what is sent to do harm. Pillow's own writers make both."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.errors import ImageError
from engine.vision import images
from engine.vision.images import open_image

ROOT = Path(__file__).resolve().parents[3]
# Pillow's notes on damaged metadata, which say nothing against the picture.
NOTES = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
LOSSLESS = ("PNG", "BMP", "GIF", "WEBP")


def scene(height: int, width: int, channels: int = 3, seed: int = 1) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def written(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def smooth(height: int, width: int) -> Image.Image:
    """Colours that survive JPEG nearly unchanged."""
    rows, columns = np.mgrid[0:height, 0:width]
    colours = np.stack([rows * 200 / height, columns * 200 / width, np.full_like(rows, 90)], axis=-1)
    return Image.fromarray(colours.astype(np.uint8))


def over_white(rgba: np.ndarray) -> np.ndarray:
    colour, alpha = rgba[..., :3].astype(np.float64), rgba[..., 3:].astype(np.float64)
    return np.rint((colour * alpha + 255 * (255 - alpha)) / 255).astype(np.uint8)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, extra: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("size", [(1, 1), (1, 37), (20, 31), (2, 2000)])
@pytest.mark.parametrize("kind", LOSSLESS)
def test_lossless_pictures_come_out_as_they_went_in(kind: str, size: tuple[int, int], folder: Path) -> None:
    colours = scene(*size) // 64 * 64 if kind == "GIF" else scene(*size)  # GIF has 256 colours
    image = Image.fromarray(colours)
    data = written(
        image.quantize(64) if kind == "GIF" else image, kind, **({"lossless": True} if kind == "WEBP" else {})
    )
    path = folder / f"été.{kind.lower()}"
    path.write_bytes(data)
    for pixels in (open_image(data), open_image(path)):
        np.testing.assert_array_equal(pixels, colours)
        assert pixels.dtype == np.uint8 and pixels.flags.c_contiguous and not pixels.flags.writeable


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_the_picture_as_pillow_does(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = written(smooth(24, 40), kind, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    pixels = open_image(data)
    np.testing.assert_array_equal(pixels, expected)
    assert pixels.shape[:2] == ((24, 40) if orientation < 5 else (40, 24)) and pixels.flags.c_contiguous


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    assert open_image(written(smooth(24, 40), "JPEG", exif=exif)).shape == (24, 40, 3)


@NOTES
@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0" + b"\xff" * 60000])
def test_exif_that_is_damaged_or_huge_says_nothing_against_the_picture(exif: bytes) -> None:
    data = written(smooth(24, 40), "JPEG")
    plain = open_image(data)
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    np.testing.assert_array_equal(open_image(data[:2] + segment * 40 + data[2:]), plain)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparency_lies_over_white(kind: str) -> None:
    rgba = scene(16, 16, 4)
    rgba[:, 0, 3], rgba[:, 1, 3] = 0, 255
    data = written(Image.fromarray(rgba), kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))
    np.testing.assert_array_equal(open_image(data), over_white(rgba))


def test_a_palette_with_transparency_lies_over_white() -> None:
    indices = scene(8, 8, 1) % 4
    palette = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90], [250, 0, 5]], np.uint8)
    alphas = np.array([0, 85, 255, 170], np.uint8)
    image = Image.frombytes("P", (8, 8), indices.tobytes())
    image.putpalette(palette.tobytes())
    rgba = np.concatenate([palette[indices], alphas[indices][..., None]], axis=-1)
    np.testing.assert_array_equal(open_image(written(image, "PNG", transparency=alphas.tobytes())), over_white(rgba))
    hidden = np.where((indices == 3)[..., None], 255, palette[indices])
    for kind in ("PNG", "GIF"):
        np.testing.assert_array_equal(open_image(written(image, kind, transparency=3)), hidden)


@pytest.mark.parametrize("mode", ["L", "LA", "1", "RGB"])
def test_grey_black_and_white_and_a_transparent_colour(mode: str) -> None:
    image = Image.fromarray(scene(9, 9, 1)).convert(mode)
    expected = over_white(np.asarray(image.convert("RGBA")))
    np.testing.assert_array_equal(open_image(written(image, "PNG")), expected)
    if mode in ("L", "RGB"):
        key = image.getpixel((4, 4))
        at = (np.asarray(image.convert("RGB")) == expected[4, 4]).all(axis=-1)
        expected[at] = 255
        np.testing.assert_array_equal(open_image(written(image, "PNG", transparency=key)), expected)


def test_sixteen_bits_keep_their_upper_eight() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 16, (6, 5, 3), dtype=np.uint16)
    grey = values[..., 0]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in grey)
    expected = np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, axis=-1)
    np.testing.assert_array_equal(open_image(png(5, 6, 16, 0, rows)), expected)
    expected[grey == grey[2, 2]] = 255
    key = chunk(b"tRNS", struct.pack(">H", grey[2, 2]))
    np.testing.assert_array_equal(open_image(png(5, 6, 16, 0, rows, key)), expected)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    np.testing.assert_array_equal(open_image(png(5, 6, 16, 2, rows)), values >> 8)


def test_cmyk_is_converted_as_pillow_does() -> None:
    data = written(smooth(16, 24).convert("CMYK"), "JPEG")
    pixels = open_image(data)
    np.testing.assert_array_equal(pixels, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    assert np.abs(pixels.astype(int) - np.asarray(smooth(16, 24)).astype(int)).max() < 12


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_it_is_the_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (12, 7), colour) for colour in ("red", "lime", "blue")]
    data = written(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    assert Image.open(io.BytesIO(data)).n_frames == 3
    np.testing.assert_array_equal(open_image(data), np.asarray(frames[0]))


def test_a_long_narrow_picture_is_right() -> None:
    colours = scene(20, 20_000)
    np.testing.assert_array_equal(open_image(written(Image.fromarray(colours), "PNG")), colours)


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


def test_heic_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as Python itself marks what cannot be imported
    data = struct.pack(">I", 24) + b"ftypmif1\0\0\0\0mif1heic" + b"\0" * 200
    with pytest.raises(ImageError, match=r"^IMG_1\.HEIC is a HEIC picture: install pillow-heif"):
        open_image(data, name="IMG_1.HEIC")
    with pytest.raises(ImageError, match="known kind"):
        open_image(data.replace(b"heic", b"avif"))


def test_heic_is_read_where_its_library_is() -> None:
    heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    heif.from_pillow(smooth(64, 96)).save(file, quality=100)
    pixels = open_image(file.getvalue())
    assert pixels.shape == (64, 96, 3)
    assert np.abs(pixels.astype(int) - np.asarray(smooth(64, 96)).astype(int)).max() < 16
    with pytest.raises(ImageError, match="96 × 64 pixels"):
        open_image(file.getvalue(), max_pixels=6000)
    with pytest.raises(ImageError, match="damaged"):
        open_image(file.getvalue()[:-200])


def test_pillow_is_imported_only_for_a_picture() -> None:
    code = "import sys, engine.vision.images as images; assert 'PIL' not in sys.modules; print(images.MAX_PIXELS)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "100000000\n"
    )
