"""Sizes, patches and colours, judged by Transformers' own processors.

They are those built on Pillow and numpy (`…Pil`): the others need torchvision, and resize with other roundings.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.modeling_idefics3 import Idefics3Connector
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from engine.errors import ImageError, SettingsError, UnsupportedModelError
from engine.vision.images import Pixels
from engine.vision.patches import MAX_PATCHES, Patches, resized
from engine.vision.resize import NearOwnSize, Square, TokenBudget

HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIZES = [(1, 1), (3, 3), (1, 150), (199, 1), (16, 16), (31, 33), (48, 80), (80, 48), (97, 211), (333, 128), (257, 255)]
LONG = [(20, 20_000), (4001, 7)]
QWEN = Patches(16, 2, HALF, HALF, frames=2, blockwise=True)


def scene(height: int, width: int) -> Pixels:
    return np.random.default_rng(height * 7919 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)


def judged(processor: object, pixels: Pixels, **options: object) -> dict[str, np.ndarray]:
    return processor(Image.fromarray(pixels), return_tensors="np", **options)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("mean", "std"), [(HALF, HALF), (CLIP_MEAN, CLIP_STD)])
def test_qwen_patches_are_those_of_transformers_bit_for_bit(
    size: tuple[int, int], mean: tuple[float, float, float], std: tuple[float, float, float]
) -> None:
    limits = {"shortest_edge": 4096, "longest_edge": 40_000}
    processor = Qwen2VLImageProcessorPil(patch_size=16, size=limits, image_mean=mean, image_std=std)
    expected = judged(processor, scene(*size))
    family = NearOwnSize(Patches(16, 2, mean, std, frames=2, blockwise=True), 4096, 40_000)
    picture = family.prepare(scene(*size))
    assert (1, *picture.grid) == tuple(expected["image_grid_thw"][0])
    assert picture.tokens == picture.grid[0] * picture.grid[1] // 4
    np.testing.assert_array_equal(picture.pixels, expected["pixel_values"])
    assert picture.pixels.dtype == np.float32 and picture.pixels.flags.c_contiguous


def test_qwen_sizes_are_those_of_transformers() -> None:
    random = np.random.default_rng(5)
    published = NearOwnSize(QWEN, 65_536, 16_777_216)
    small = NearOwnSize(Patches(14, 2, HALF, HALF), 3136, 200_704)
    for _ in range(2000):
        height, width = (int(side) for side in np.exp(random.uniform(0, np.log(20_000), 2)))
        if max(height, width) > 200 * min(height, width):
            for family in (published, small):
                with pytest.raises(ImageError, match=f"{width} × {height} pixels"):
                    family.size(height, width)
            continue
        assert published.size(height, width) == smart_resize(height, width, 32, 65_536, 16_777_216)
        assert small.size(height, width) == smart_resize(height, width, 28, 3136, 200_704)


def test_a_cap_on_patches_holds_for_every_shape() -> None:
    random = np.random.default_rng(6)
    family = NearOwnSize(QWEN, 65_536, 16_777_216)
    for _ in range(2000):
        short = int(np.exp(random.uniform(0, np.log(2000))))
        height, width = random.permutation([short, min(short * int(random.integers(1, 201)), 20_000)])
        cap = int(random.integers(4, 300))
        high, wide = family.size(int(height), int(width), cap)
        assert high % 32 == wide % 32 == 0 and 0 < high * wide // 256 <= cap
    assert family.prepare(scene(40, 40), 5).grid == (2, 2)
    with pytest.raises(SettingsError, match=r"at least 4 .* not 3"):
        family.size(40, 40, 3)


@pytest.mark.parametrize("size", [(1, 1), (30, 200), (233, 97), (20, 20_000)])
def test_gemma_3_pictures_are_those_of_transformers_bit_for_bit(size: tuple[int, int]) -> None:
    processor = Gemma3ImageProcessorPil(size={"height": 112, "width": 112})
    expected = judged(processor, scene(*size))["pixel_values"]
    columns = torch.nn.functional.unfold(torch.from_numpy(expected), 14, stride=14)[0].T.numpy()
    picture = Square(Patches(14, 4, HALF, HALF), 112).prepare(scene(*size))
    np.testing.assert_array_equal(picture.pixels, columns)
    assert picture.grid == (8, 8) and picture.tokens == 4


def test_gemma_3_has_256_tokens() -> None:
    picture = Square(Patches(14, 4, HALF, HALF), 896).prepare(scene(50, 70))
    assert picture.grid == (64, 64) and picture.tokens == 256 and picture.pixels.shape == (4096, 588)


@pytest.mark.parametrize("size", SIZES + LONG)
def test_gemma_4_pictures_are_those_of_transformers_bit_for_bit(size: tuple[int, int]) -> None:
    processor = Gemma4ImageProcessorPil(patch_size=8, max_soft_tokens=70)
    expected = judged(processor, scene(*size))
    family = TokenBudget(Patches(8, 3, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), channels_last=True), 70)
    picture = family.prepare(scene(*size))
    rows, columns = picture.grid
    assert picture.tokens == expected["num_soft_tokens_per_image"][0] == rows * columns // 9
    np.testing.assert_array_equal(picture.pixels, expected["pixel_values"][0, : rows * columns])
    order = [(column, row) for row in range(rows) for column in range(columns)]
    np.testing.assert_array_equal(order, expected["image_position_ids"][0, : rows * columns])
    assert (expected["image_position_ids"][0, rows * columns :] == -1).all()


def test_gemma_4_scales_in_its_model_what_a_mean_of_a_half_scales_here() -> None:
    plain = Patches(8, 3, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)).cut(scene(24, 24)).pixels
    np.testing.assert_array_equal(Patches(8, 3, HALF, HALF).cut(scene(24, 24)).pixels, 2 * (plain - np.float32(0.5)))


def test_gemma_4_under_a_cap_takes_the_largest_budget_that_fits() -> None:
    family = TokenBudget(Patches(16, 3, HALF, HALF), 280)
    assert family.size(500, 700) == TokenBudget(family.patches, 280).size(500, 700, 280 * 9)
    assert family.size(500, 700, 280 * 9 - 1) == TokenBudget(family.patches, 140).size(500, 700)
    assert family.size(500, 700, 70 * 9) == TokenBudget(family.patches, 70).size(500, 700)
    with pytest.raises(SettingsError, match=r"at least 630 .* not 629"):
        family.size(500, 700, 629)


def test_blockwise_patches_lie_as_pixel_shuffling_wants_them() -> None:
    row_by_row = Patches(4, 4, HALF, HALF).cut(scene(32, 48)).pixels
    blockwise = Patches(4, 4, HALF, HALF, blockwise=True).cut(scene(32, 48)).pixels
    square = torch.from_numpy(Patches(4, 4, HALF, HALF).cut(scene(32, 32)).pixels)[None]
    shuffled = Idefics3Connector.pixel_shuffle(None, square, 4)[0].numpy()
    together = Patches(4, 4, HALF, HALF, blockwise=True).cut(scene(32, 32)).pixels
    np.testing.assert_array_equal(together.reshape(4, -1), shuffled)
    assert {row.tobytes() for row in row_by_row} == {row.tobytes() for row in blockwise}


def test_a_digest_tells_apart_whatever_differs() -> None:
    colours = scene(32, 64)
    other = colours.copy()
    other[9, 9, 1] ^= 1
    cuts = [
        QWEN.cut(colours),
        QWEN.cut(other),
        QWEN.cut(colours.reshape(64, 32, 3)),
        Patches(16, 2, HALF, HALF, frames=2).cut(colours),
        Patches(16, 2, HALF, HALF, blockwise=True).cut(colours),
        Patches(8, 2, HALF, HALF, frames=2, blockwise=True).cut(colours),
        Patches(16, 1, HALF, HALF, frames=2, blockwise=True).cut(colours),
        Patches(16, 2, HALF, CLIP_STD, frames=2, blockwise=True).cut(colours),
        Patches(16, 2, HALF, HALF, frames=2, blockwise=True, channels_last=True).cut(colours),
    ]
    assert len({picture.digest for picture in cuts}) == len(cuts)
    assert QWEN.cut(np.asfortranarray(colours)).digest == cuts[0].digest and len(cuts[0].digest) == 32


RESIZED = {
    ("bilinear", 50, 40): "bdb0583f326c19d0",
    ("bicubic", 50, 40): "01ad6d2e94aa8d82",
    ("lanczos", 50, 40): "a367de3440420e49",
    ("bilinear", 301, 507): "fb31de1cc69de5f8",
    ("bicubic", 301, 507): "fd03af086182d346",
    ("lanczos", 301, 507): "e89d6736e95b7baf",
}


@pytest.mark.parametrize(("method", "height", "width"), RESIZED)
def test_resizing_gives_the_same_codes_on_every_machine(method: str, height: int, width: int) -> None:
    """Recorded once, on x86-64 with Pillow 13.0: another processor or version must not change them."""
    at = np.arange(120 * 130 * 3, dtype=np.uint64)
    colours = ((at * 2654435761 >> 7) % 256).astype(np.uint8).reshape(120, 130, 3)
    codes = resized(colours, height, width, method)
    assert codes.shape == (height, width, 3)
    assert hashlib.sha256(codes.tobytes()).hexdigest()[:16] == RESIZED[method, height, width]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Patches(0, 2, HALF, HALF),
        lambda: Patches(1 << 40, 2, HALF, HALF),
        lambda: Patches(16, 0, HALF, HALF),
        lambda: Patches(16, 2, HALF, HALF, frames=0),
        lambda: Patches(16, 2, HALF, HALF, frames=1 << 40),
        lambda: Patches(16, 2, HALF, (0.5, 0.0, 0.5)),
        lambda: Patches(16, 2, HALF, (0.5, -0.5, 0.5)),
        lambda: Patches(16, 2, (0.5, 1e300, 0.5), HALF),
        lambda: Patches(16, 2, HALF, (0.5, 1e-60, 0.5)),
        lambda: Patches(16, 2, (0.5, float("nan"), 0.5), HALF),
        lambda: Patches(16, 2, (0.5, 0.5), HALF),
        lambda: NearOwnSize(QWEN, 0, 65_536),
        lambda: NearOwnSize(QWEN, 65_536, 4096),
        lambda: NearOwnSize(QWEN, 1, 1023),
        lambda: Square(QWEN, 0),
        lambda: Square(QWEN, 100),
        lambda: Square(QWEN, 1 << 40),
        lambda: TokenBudget(QWEN, 0),
        lambda: TokenBudget(QWEN, MAX_PATCHES),
        lambda: TokenBudget(Patches(256, 1, HALF, HALF), 257),
        lambda: Square(Patches(256, 1, HALF, HALF), 4096 + 256),
    ],
)
def test_numbers_that_no_model_has_are_refused(make: object) -> None:
    with pytest.raises(UnsupportedModelError):
        make()


def test_more_than_any_model_has_is_refused_before_it_is_made() -> None:
    tiny, large = Patches(1, 1, HALF, HALF), Patches(256, 1, HALF, HALF)
    for patches in (tiny, large):
        with pytest.raises(UnsupportedModelError, match=r"1048576 × 1048576 pixels"):
            patches.prepare(scene(8, 8), 1 << 20, 1 << 20, "bicubic")
    with pytest.raises(UnsupportedModelError, match="at most 256"):
        Square(tiny, 257)
    assert NearOwnSize(tiny, 1 << 40, 1 << 50).size(8, 8) == (256, 256)
    assert NearOwnSize(large, 1 << 40, 1 << 50).size(8, 8) == (4096, 4096)
