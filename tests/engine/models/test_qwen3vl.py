"""Qwen3-VL's text part against Transformers: logits of text and pictures, whose features Transformers made."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from engine.cancel import Cancel
from engine.decode.cache import KVCache
from engine.decode.forward import Forward
from engine.decode.prompt import Prompt
from engine.memory.meter import Meter
from engine.vision.patches import Picture
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, tolerance, transformers_logits
from tests.tiny import load_model, tiny, write_gguf

PAD, SIDE = 90, 16
"""The token that stands for a row of a picture in Transformers, and the pixels of one such row's side."""
MULTI = [1, 2, (2, 3), 7, (4, 1), 6, (1, 1), 8, 9]
"""Tokens, and pictures by their grids of tokens."""


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    made = tiny("qwen3vl")
    made.config.image_token_id = made.model.config.image_token_id = PAD
    return made


@pytest.mark.parametrize("device", DEVICES)
def test_text_alone_agrees_with_transformers(model: PreTrainedModel, device: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


def pictures(items: list[object]) -> list[tuple[torch.Tensor, tuple[int, int]]]:
    """Pixels of random pictures, in Qwen's order of patches, and their grids in patches."""
    draws = torch.Generator().manual_seed(3)
    made = []
    for item in items:
        if isinstance(item, tuple):
            grid = (2 * item[0], 2 * item[1])
            made.append((torch.randn(grid[0] * grid[1], 3 * 2 * 8 * 8, generator=draws), grid))
    return made


def truth(model: PreTrainedModel, items: list[object]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits of every row, and the features of every picture: [tokens, hidden_size · levels]."""
    shown = pictures(items)
    pixels = torch.cat([part for part, _ in shown])
    grids = torch.tensor([[1, *grid] for _, grid in shown])
    ids = [token for item in items for token in ([item] if isinstance(item, int) else [PAD] * (item[0] * item[1]))]
    kinds = torch.tensor([[int(token == PAD) for token in ids]])
    with torch.no_grad():
        seen = model.model.get_image_features(pixels, grids)
        logits = model(torch.tensor([ids]), pixel_values=pixels, image_grid_thw=grids, mm_token_type_ids=kinds).logits[
            0
        ]
    levels = [torch.cat(level) if isinstance(level, (tuple, list)) else level for level in seen.deepstack_features]
    whole = torch.cat([torch.cat(list(seen.pooler_output)), *levels], dim=1)
    return logits.numpy(), [part.numpy() for part in whole.split([grid[0] * grid[1] // 4 for _, grid in shown])]


def prompt_of(items: list[object]) -> Prompt:
    shown = iter(pictures(items))
    ids: list[int | Picture] = []
    for place, item in enumerate(items):
        if isinstance(item, int):
            ids.append(item)
        else:
            pixels, grid = next(shown)
            ids.append(Picture(pixels.numpy(), grid, grid[0] * grid[1] // 4, bytes([place + 1]) * 32))
    return Prompt.of(ids)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("items", [[1, (2, 2), 5], MULTI, [(3, 2), 4]], ids=["one", "several", "first"])
def test_text_and_pictures_agree_with_transformers(
    model: PreTrainedModel, device: str, items: list[object], tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", model)
    logits, features = truth(model, items)
    bound = tolerance(device, "f32") * np.abs(logits).max()
    prompt = prompt_of(items)
    seen = {placed.picture.digest: part for placed, part in zip(prompt.pictures, features, strict=True)}
    made = {}
    for chunk in (1, 3, 512):
        with closing(DEVICES[device]()) as ops:
            ours = load_model(tmp_path / "tiny.gguf", ops)
            cache = KVCache(ops, ours.caches, 64, "f32", Meter())
            forward = Forward(ours, ops, cache, lambda picture, cancel, ops=ops: ops.tensor(seen[picture.digest]))
            forward.begin(prompt)
            rows = []
            while len(cache) < len(prompt):
                rows.append(forward.logits(forward.advance(prompt.piece(len(cache), chunk))).copy())
            made[chunk] = np.concatenate(rows)
            assert np.abs(made[chunk] - logits).max() <= bound
    if device in CONTRACT:
        assert made[1].tobytes() == made[3].tobytes() == made[512].tobytes()


def test_a_second_turn_with_a_picture_keeps_the_first_and_gives_the_bits_of_a_fresh_cache(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", model)
    first, items = [1, (2, 2), 5, 6], [1, (2, 2), 5, 6, 7, (3, 1), 8]
    _, features = truth(model, items)
    prompt = prompt_of(items)
    seen = {placed.picture.digest: part for placed, part in zip(prompt.pictures, features, strict=True)}
    looked = []

    with closing(DEVICES["native"]()) as ops:
        ours = load_model(tmp_path / "tiny.gguf", ops)

        def see(picture: Picture, cancel: Cancel | None) -> object:
            looked.append(picture.digest)
            return ops.tensor(seen[picture.digest])

        results = []
        for turns in ([first, items], [items]):
            forward = Forward(ours, ops, KVCache(ops, ours.caches, 64, "f32", Meter()), see)
            for turn in turns:
                asked = prompt_of(turn)
                kept = forward.begin(asked)
                while len(forward.cache) < len(asked):
                    hidden = forward.advance(asked.piece(len(forward.cache), 512))
                last = forward.next_logits(hidden).copy()
                for token in (3, 4):  # written after the prompt, by recorded steps
                    last = forward.next_logits(forward.advance([token])).copy()
            results.append((kept, last))
    assert results[0][0] == 7 and results[1][0] == 0
    assert results[0][1].tobytes() == results[1][1].tobytes()
    assert looked == [prompt.pictures[0].picture.digest] + [placed.picture.digest for placed in prompt.pictures][1:] + [
        placed.picture.digest for placed in prompt.pictures
    ]
