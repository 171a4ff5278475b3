"""Pictures as people send them. Pillow's own writers make the files."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.errors import ImageError
from engine.vision.images import open_image, preview
from tests.engine.vision.pictures import chunk, png, scene, smooth, written

ROOT = Path(__file__).resolve().parents[3]
LOSSLESS = ("PNG", "BMP", "GIF", "WEBP")


def over_white(rgba: np.ndarray) -> np.ndarray:
    colour, alpha = rgba[..., :3].astype(np.float64), rgba[..., 3:].astype(np.float64)
    return np.rint((colour * alpha + 255 * (255 - alpha)) / 255).astype(np.uint8)


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


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_preview_is_the_picture_made_small(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = written(smooth(240, 400), kind, **({} if kind == "GIF" else {"exif": exif}))
    whole = open_image(data)
    small, size = preview(data, 100)
    assert size == (whole.shape[1], whole.shape[0])
    assert max(small.shape[:2]) == 100
    expected = np.asarray(Image.fromarray(whole).resize((small.shape[1], small.shape[0]), Image.Resampling.BOX))
    assert np.abs(small.astype(int) - expected).mean() < 4


def test_a_preview_is_never_larger_than_the_picture() -> None:
    colours = scene(20, 31)
    small, size = preview(written(Image.fromarray(colours), "PNG"), 100)
    np.testing.assert_array_equal(small, colours)
    assert size == (31, 20)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_preview_of_a_picture_that_is_cut_short_is_refused(kind: str) -> None:
    data = written(smooth(240, 400), kind)
    for kept in (0.5, 0.9):
        with pytest.raises(ImageError, match="cut short"):
            preview(data[: int(len(data) * kept)], 100)


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
