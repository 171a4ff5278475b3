"""Vision towers against Transformers, in float32 over the same weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.cancel import Cancel, Cancelled
from engine.kernels.reference import ReferenceOps
from engine.vision import encoder
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.vision.towers import HALF, Family, fill, gemma3, gemma4, idefics3, load, picture, qwen, write

Grid = tuple[int, int]
QWEN_GRIDS: list[Grid] = [(2, 2), (4, 4), (6, 10), (14, 2), (2, 18), (5 * 2, 5 * 2)]
GEMMA4_GRIDS: list[Grid] = [(3, 3), (6, 9), (15, 3), (3, 24)]
CASES: dict[str, tuple[Callable[[], Family], list[Grid]]] = {
    "qwen3_vl": (qwen, QWEN_GRIDS),
    "qwen3_vl, one block": (lambda: qwen(depth=1, deepstack_visual_indexes=[]), [(4, 6)]),
    "qwen3_vl, every level": (lambda: qwen(deepstack_visual_indexes=[0, 1, 2]), [(4, 6)]),
    "qwen3_vl, merging three": (lambda: qwen(spatial_merge_size=3), [(3, 3), (6, 9)]),
    "qwen3_vl, heads of twelve": (lambda: qwen(hidden_size=48, num_heads=4, intermediate_size=50), [(4, 6)]),
    "qwen3_5": (lambda: qwen("qwen3_5"), QWEN_GRIDS[2:4]),
    "gemma3": (gemma3, [(8, 8)]),
    "gemma3, one token": (lambda: gemma3(side=4), [(4, 4)]),
    "gemma3, pooling two": (lambda: gemma3(side=6, kernel=2, num_hidden_layers=1), [(6, 6)]),
    "idefics3": (idefics3, [(8, 8)]),
    "idefics3, merging four": (lambda: idefics3(side=12, scale_factor=4), [(12, 12)]),
    "gemma4": (gemma4, GEMMA4_GRIDS),
    "gemma4, clipped": (lambda: gemma4(use_clipped_linears=True), [(6, 9)]),
    "gemma4, standardised": (lambda: gemma4(standardize=True), [(6, 9)]),
    "gemma4, pooling two": (lambda: gemma4(pooling_kernel_size=2), [(4, 6)]),
}
PLAIN = {name: case for name, case in CASES.items() if "," not in name}


def made(name: str) -> Family:
    family = CASES[name][0]()
    fill(family.modules)
    return family


def truth(family: Family, grid: Grid) -> np.ndarray:
    with torch.no_grad():
        return family.truth(picture(family, grid))


def check(path: Path, family: Family, grids: list[Grid], device: str, bound: float) -> None:
    with closing(DEVICES[device]()) as ops:
        tower = load(path, ops)
        for grid in grids:
            seen = picture(family, grid)
            wanted = truth(family, grid)
            got = ops.host(tower.encode(ops, seen))
            assert got.shape == wanted.shape == (seen.tokens, tower.width)
            assert np.abs(got - wanted).max() <= bound * np.abs(wanted).max(), grid


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_every_shape_agrees_with_transformers(case: str, device: str, tmp_path: Path) -> None:
    family = made(case)
    check(write(tmp_path / "mmproj.gguf", family), family, CASES[case][1], device, 2e-5)


@pytest.mark.parametrize(("case", "encoding"), list(product(PLAIN, ("F16", "BF16", "Q8_0"))))
@pytest.mark.parametrize("device", DEVICES)
def test_every_encoding_agrees_with_transformers(case: str, encoding: str, device: str, tmp_path: Path) -> None:
    family = made(case)
    bound = 1e-3 if encoding == "Q8_0" and device in CONTRACT else 2e-5
    check(write(tmp_path / "mmproj.gguf", family, encoding), family, CASES[case][1][:2], device, bound)


@pytest.mark.parametrize("encoding", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("case", ["qwen3_vl", "gemma3", "gemma4, clipped"])
def test_the_plain_and_the_native_device_give_the_same_bits(case: str, encoding: str, tmp_path: Path) -> None:
    family = made(case)
    path = write(tmp_path / "mmproj.gguf", family, encoding)
    seen = picture(family, CASES[case][1][0])
    outputs = []
    for device in CONTRACT:
        with closing(DEVICES[device]()) as ops:
            outputs.append(np.array(ops.host(load(path, ops).encode(ops, seen))))
    assert np.array_equal(outputs[0].view(np.uint32), outputs[1].view(np.uint32))


@pytest.mark.parametrize("device", DEVICES)
def test_attention_in_pieces_gives_the_same_bits(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = made("qwen3_vl")
    path, seen = write(tmp_path / "mmproj.gguf", family), picture(family, (6, 10))
    monkeypatch.setattr(encoder, "PAIRS", 60 * 7)
    with closing(DEVICES[device]()) as ops:
        pieces = np.array(ops.host(load(path, ops).encode(ops, seen)))
        monkeypatch.undo()
        whole = np.array(ops.host(load(path, ops).encode(ops, seen)))
    if device in CONTRACT:
        assert np.array_equal(pieces.view(np.uint32), whole.view(np.uint32))
    assert np.abs(pieces - whole).max() <= 1e-5 * np.abs(whole).max()


class FifthLook(Cancel):
    """Set at the fifth look."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def check(self) -> None:
        self._looks += 1
        if self._looks == 5:
            self.set()
        super().check()


def test_a_picture_of_many_patches_can_be_cancelled_within_a_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = made("qwen3_vl, one block")
    path, seen = write(tmp_path / "mmproj.gguf", family), picture(family, (6, 10))
    with closing(DEVICES["native"]()) as ops:
        tower = load(path, ops)
        tower.encode(ops, seen, FifthLook())
        monkeypatch.setattr(encoder, "PAIRS", 60 * 7)
        with pytest.raises(Cancelled):
            tower.encode(ops, seen, FifthLook())


@pytest.mark.parametrize("case", ["qwen3_vl", "gemma4, clipped"])
def test_a_picture_taken_in_pieces_gives_the_same_bits(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = made(case)
    path = write(tmp_path / "mmproj.gguf", family, "Q8_0")
    seen = picture(family, (6, 12))
    outputs = []
    for rows in (1024, 5):
        monkeypatch.setattr(encoder, "ROWS", rows)
        with closing(DEVICES["native"]()) as ops:
            outputs.append(np.array(ops.host(load(path, ops).encode(ops, seen))))
    assert np.array_equal(outputs[0].view(np.uint32), outputs[1].view(np.uint32))


def test_feed_forwards_whose_names_changed_places_are_told_by_their_shapes(tmp_path: Path) -> None:
    family = made("gemma3")
    names = family.name
    old = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}

    def changed(parameter: str) -> list[str]:
        parts = names(parameter)[0].split(".")
        return [".".join(old.get(part, part) for part in parts)]

    older = replace(family, name=changed)
    check(write(tmp_path / "mmproj.gguf", older), older, [(8, 8)], "reference", 2e-5)


def agrees(path: Path, colours: np.ndarray, cap: int, grid: Grid, wanted: torch.Tensor) -> None:
    """From a picture's colours to its features."""
    ops = ReferenceOps()
    tower = load(path, ops)
    seen = tower.prepare(colours, cap)
    assert seen.grid == grid
    got = ops.host(tower.encode(ops, seen))
    assert np.abs(got - wanted.numpy()).max() <= 2e-5 * np.abs(wanted.numpy()).max()


COLOURS = np.random.default_rng(5).integers(0, 256, (90, 130, 3), np.uint8)


@torch.no_grad()
def test_qwen_sees_a_picture_as_transformers_does(tmp_path: Path) -> None:
    family = made("qwen3_vl")
    limits = {"clip.vision.image_min_pixels": 64, "clip.vision.image_max_pixels": 1024}
    processor = Qwen2VLImageProcessorPil(
        patch_size=4, image_mean=HALF, image_std=HALF, size={"shortest_edge": 64, "longest_edge": 1024}
    )
    batch = processor(Image.fromarray(COLOURS), return_tensors="pt")
    path = write(tmp_path / "mmproj.gguf", family, **limits)
    out = family.modules["model"](batch["pixel_values"], grid_thw=batch["image_grid_thw"])
    wanted = torch.cat([out.pooler_output, *out.deepstack_features], dim=1)
    agrees(path, COLOURS, 64, tuple(batch["image_grid_thw"][0, 1:].tolist()), wanted)


@torch.no_grad()
def test_gemma3_sees_a_picture_as_transformers_does(tmp_path: Path) -> None:
    family = made("gemma3")
    path = write(tmp_path / "mmproj.gguf", family)
    processor = Gemma3ImageProcessorPil(image_mean=HALF, image_std=HALF, size={"height": 32, "width": 32})
    pixels = processor(Image.fromarray(COLOURS), return_tensors="pt")["pixel_values"]
    features = family.modules["model"](pixels).last_hidden_state
    agrees(path, COLOURS, 64, (8, 8), family.modules["multi_modal_projector"](features)[0])


@torch.no_grad()
def test_gemma4_sees_a_picture_as_transformers_does(tmp_path: Path) -> None:
    family = gemma4(position_embedding_size=64)
    fill(family.modules)
    path = write(tmp_path / "mmproj.gguf", family)
    batch = Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)(Image.fromarray(COLOURS), return_tensors="pt")
    pixels, positions = batch["pixel_values"], batch["image_position_ids"]
    features = family.modules["model"](pixels, positions).last_hidden_state
    columns, rows = (positions[0].amax(dim=0) + 1).tolist()
    agrees(path, COLOURS, 70 * 9, (rows, columns), family.modules["embed_vision"](features))
