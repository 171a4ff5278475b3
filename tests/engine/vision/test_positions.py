"""Positions, judged by Transformers' models and by torch's own interpolation."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import torch
from transformers import Gemma4VisionConfig, Qwen3_5Config, Qwen3_5Model, Qwen3VLConfig, Qwen3VLModel
from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionRotaryEmbedding
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding, Qwen3_5VisionRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding, Qwen3VLVisionRotaryEmbedding
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

from engine.vision.patches import Patches
from engine.vision.positions import (
    Segment,
    axial_rotary,
    grid_taps,
    interpolated,
    patch_places,
    prompt_positions,
    rotary,
    rotary_axes,
)

VISION = {"depth": 1, "hidden_size": 64, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 64}
TEXT = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 64,
    "vocab_size": 32,
}
GRIDS = [(2, 2), (4, 6), (10, 2), (2, 30), (16, 16), (14, 22)]
PROMPTS: list[list[Segment]] = [
    [7],
    [3, (2, 3), 4],
    [1, (5, 1), 2],
    [(4, 4), 1],
    [2, (1, 9), 1, (3, 3), 1, (7, 2), 5],
    [12, (1, 1), 30],
]


@pytest.fixture(scope="module", params=["qwen3_vl", "qwen3_5"])
def model(request: pytest.FixtureRequest) -> Qwen3VLModel | Qwen3_5Model:
    with torch.device("meta"):
        if request.param == "qwen3_vl":
            vision = {**VISION, "deepstack_visual_indexes": [0]}
            return Qwen3VLModel(Qwen3VLConfig(text_config=TEXT, vision_config=vision))
        return Qwen3_5Model(Qwen3_5Config(text_config=TEXT, vision_config=VISION))


def judged(model: Qwen3VLModel | Qwen3_5Model, segments: list[Segment]) -> tuple[np.ndarray, int]:
    """Positions, and the next one, as Transformers tells them of the whole prompt."""
    kinds = [[0] * part if isinstance(part, int) else [1] * (part[0] * part[1]) for part in segments]
    kinds = torch.tensor([list(chain.from_iterable(kinds))])
    grids = [[1, 2 * part[0], 2 * part[1]] for part in segments if not isinstance(part, int)]
    grids = torch.tensor(grids) if grids else None
    positions, delta = model.get_rope_index(torch.zeros_like(kinds), kinds, image_grid_thw=grids)
    return positions[:, 0].T.numpy(), kinds.shape[1] + int(delta)


@pytest.mark.parametrize("segments", PROMPTS)
def test_prompt_positions_are_those_of_transformers(model: Qwen3VLModel, segments: list[Segment]) -> None:
    expected, following = judged(model, segments)
    positions, after = prompt_positions(segments)
    np.testing.assert_array_equal(positions, expected)
    assert after == following and positions.dtype == np.int64


@pytest.mark.parametrize("segments", PROMPTS)
def test_a_later_turn_goes_on_where_the_first_ended(model: Qwen3VLModel, segments: list[Segment]) -> None:
    expected, following = judged(model, [5, (3, 6), 2, *segments])
    first, between = prompt_positions([5, (3, 6), 2])
    second, after = prompt_positions(segments, between)
    np.testing.assert_array_equal(np.concatenate([first, second]), expected)
    assert after == following


def test_an_empty_prompt_has_no_positions() -> None:
    positions, after = prompt_positions([], 9)
    assert positions.shape == (0, 3) and after == 9


def test_a_picture_right_after_another_starts_after_it() -> None:
    positions, after = prompt_positions([(2, 3), (1, 2)])
    assert positions.tolist() == [
        *([0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]),
        *([3, 3, 3], [3, 3, 4]),
    ]
    assert after == 5


@pytest.mark.parametrize(
    ("embedding", "config", "sections"),
    [
        (Qwen3VLTextRotaryEmbedding, Qwen3VLConfig, [12, 10, 10]),
        (Qwen3VLTextRotaryEmbedding, Qwen3VLConfig, [24, 4, 4]),
        (Qwen3_5TextRotaryEmbedding, Qwen3_5Config, [11, 11, 10]),
    ],
)
def test_interleaved_angles_of_a_prompt_are_those_of_transformers(
    embedding: type, config: type, sections: list[int]
) -> None:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": sections, "partial_rotary_factor": 1.0}
    module = embedding(config(text_config={**TEXT, "rope_parameters": rope}, vision_config=VISION).text_config)
    positions, _ = prompt_positions([40, (5, 9), 3, (20, 2), 8])
    expected = module(torch.zeros(1), torch.from_numpy(positions.T[:, None]))
    frequencies = np.power(10_000.0, -np.arange(0, 64, 2) / 64)
    for ours, theirs in zip(rotary(positions[:, rotary_axes(32, [*sections, 0])], frequencies), expected, strict=True):
        np.testing.assert_allclose(np.tile(ours, 2), theirs[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("block", [1, 2])
def test_patches_lie_in_the_order_of_transformers(grid: tuple[int, int], block: int) -> None:
    expected = get_vision_position_ids(torch.tensor([[1, *grid]]), block)
    np.testing.assert_array_equal(patch_places(grid, block), expected.numpy())


def test_places_are_those_of_the_patches_that_are_cut() -> None:
    rows, columns = np.mgrid[0:12, 0:20]
    pixels = np.stack([rows, columns, 0 * rows], axis=-1).astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    picture = Patches(2, 4, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255), blockwise=True).cut(pixels)
    corners = np.rint(picture.pixels.reshape(-1, 3, 4)[:, :2, 0])
    np.testing.assert_array_equal(patch_places(picture.grid, 4), corners)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("embedding", [Qwen3VLVisionRotaryEmbedding, Qwen3_5VisionRotaryEmbedding])
def test_angles_in_qwen_towers_are_those_of_transformers(grid: tuple[int, int], embedding: type) -> None:
    config = (Qwen3VLConfig if embedding is Qwen3VLVisionRotaryEmbedding else Qwen3_5Config)(vision_config=VISION)
    theirs = embedding(config.vision_config)(torch.zeros(1), get_vision_position_ids(torch.tensor([[1, *grid]]), 2))
    ours = axial_rotary(patch_places(grid, 2), 32, 10_000.0)
    for own, other in zip(ours, theirs, strict=True):
        assert own.dtype == np.float32 and own.shape == (grid[0] * grid[1], 16)
        np.testing.assert_allclose(np.tile(own, 2), other.numpy(), atol=1e-5)


def test_angles_in_gemma_4_towers_are_those_of_transformers() -> None:
    config = Gemma4VisionConfig(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, head_dim=32)
    places = patch_places((6, 9))
    theirs = Gemma4VisionRotaryEmbedding(config)(torch.zeros(1), torch.from_numpy(places[None, :, ::-1].copy()))
    ours = axial_rotary(places, 32, config.rope_parameters["rope_theta"])
    for own, other in zip(ours, theirs, strict=True):
        rows, columns = own[:, :8], own[:, 8:]
        expected = np.concatenate([columns, columns, rows, rows], axis=1)
        np.testing.assert_allclose(expected, other[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("grid", [*GRIDS, (1, 1), (1, 7), (48, 48), (3, 61)])
@pytest.mark.parametrize("side", [1, 7, 48])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_a_learned_grid_is_interpolated_as_by_torch(
    grid: tuple[int, int], side: int, align_corners: bool, method: str
) -> None:
    table = np.random.default_rng(side).standard_normal((side * side, 3)).astype(np.float32)
    square = torch.from_numpy(table).double().T.reshape(1, 3, side, side)
    expected = torch.nn.functional.interpolate(square, grid, mode=method, align_corners=align_corners)
    indices, weights = grid_taps(patch_places(grid), grid, side, method, align_corners)
    assert indices.shape == weights.shape == (grid[0] * grid[1], 4 if method == "bilinear" else 16)
    assert indices.min() >= 0 and indices.max() < side * side and weights.dtype == np.float32
    values = interpolated(table, indices, weights)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, expected[0].reshape(3, -1).T.numpy(), atol=2e-6)


@pytest.mark.parametrize("grid", GRIDS)
def test_qwen_reads_its_learned_grid_as_transformers_does(
    model: Qwen3VLModel | Qwen3_5Model, grid: tuple[int, int]
) -> None:
    tower = model.visual
    side = tower.num_grid_per_side
    table = np.random.default_rng(2).standard_normal((side * side, 5)).astype(np.float32)
    indices, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[1, *grid]]),
        side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.spatial_merge_size,
    )
    expected = (torch.from_numpy(table)[indices] * weights[:, :, None]).sum(1)
    values = interpolated(table, *grid_taps(patch_places(grid, 2), grid, side))
    np.testing.assert_allclose(values, expected.numpy(), atol=2e-5)


def test_a_grid_of_the_learned_size_is_read_as_it_is() -> None:
    table = np.random.default_rng(2).standard_normal((144, 5)).astype(np.float32)
    for method in ("bilinear", "bicubic"):
        for align_corners in (True, False):
            taps = grid_taps(patch_places((12, 12)), (12, 12), 12, method, align_corners)
            np.testing.assert_array_equal(interpolated(table, *taps), table)
