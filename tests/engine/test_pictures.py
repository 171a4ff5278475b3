"""Pictures from a message to the reply, against Transformers: a tiny Qwen3-VL with its tower in a file beside it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from transformers import PreTrainedModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine import (
    Budgets,
    Cancel,
    Engine,
    Finished,
    Image,
    Message,
    PrefillProgress,
    Settings,
    UnsupportedModelError,
    describe,
)
from engine.cancel import Cancelled
from engine.errors import ContextError, ImageError, ModelFileError, SettingsError
from engine.models.rotary import table_bytes
from engine.types import PLACE
from tests.engine.vision.towers import HALF, fill, gemma3, qwen, write
from tests.tiny_chat import write_tiny_chat
from tests.tiny_seeing import END, PAD, PIXELS, SEE, SEEN, START, write_seeing

GREEDY = Settings(temperature=0, max_tokens=6)
BUDGETS = Budgets(threads=2, context=256, kv="f32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("see")


@pytest.fixture(scope="module")
def model(folder: Path) -> PreTrainedModel:
    return write_seeing(folder)


def png(width: int, height: int, seed: int = 0) -> Image:
    colours = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    PillowImage.fromarray(colours).save(file, "PNG")
    return Image(file.getvalue(), f"{width}x{height}.png")


def transformers_reply(model: PreTrainedModel, parts: Sequence[int | Image], tokens: int) -> list[int]:
    """The prompt's rows and the greedy reply after it."""
    processor = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, image_mean=HALF, image_std=HALF, min_pixels=PIXELS[0], max_pixels=PIXELS[1]
    )
    images = [PillowImage.open(io.BytesIO(part.data)) for part in parts if isinstance(part, Image)]
    inputs = {}
    grids = iter(())
    if images:
        made = processor(images, return_tensors="pt")
        inputs = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}
        grids = iter(made["image_grid_thw"].prod(dim=1).tolist())
    ids = [row for part in parts for row in ([part] if isinstance(part, int) else [PAD] * (next(grids) // 4))]
    for _ in range(tokens):
        rows = torch.tensor([ids])
        with torch.no_grad():
            logits = model(rows, mm_token_type_ids=(rows == PAD).long(), **inputs).logits[0, -1]
        ids.append(int(logits.argmax()))
    return ids


def said(text: str) -> list[int]:
    return list(text.encode())


def turn(role: str, *content: int | Image) -> list[int | Image]:
    seen = [[SEE, part, SEEN] if isinstance(part, Image) else [part] for part in content]
    return [START, *said(f"{role}\n"), *(row for part in seen for row in part), END, *said("\n")]


@pytest.fixture
def engine(folder: Path, model: PreTrainedModel):
    with Engine.load(folder / "tiny.gguf", BUDGETS) as made:
        yield made


def rows_after(engine: Engine, messages: Sequence[Message]) -> list[int]:
    """What the cache holds after the reply, a picture's rows as Transformers has them."""
    for _ in engine.chat(messages, GREEDY):
        pass
    return [token if token >= 0 else PAD for token in engine._cache.tokens]


FIRST, SECOND, THIRD = png(40, 24, 1), png(17, 50, 2), png(8, 8, 3)
QUESTIONS = {
    "before the text": (Message("user", "What?", images=(FIRST,)), turn("user", FIRST, *said("What?"))),
    "among the text": (
        Message("user", f"a{PLACE}bc{PLACE}", images=(FIRST, SECOND)),
        turn("user", *said("a"), FIRST, *said("bc"), SECOND),
    ),
    "more than places": (
        Message("user", f"a{PLACE}b", images=(THIRD, SECOND, FIRST)),
        turn("user", THIRD, SECOND, *said("a"), FIRST, *said("b")),
    ),
    "fewer than places": (
        Message("user", f"{PLACE}b{PLACE}", images=(THIRD,)),
        turn("user", THIRD, *said(f"b{PLACE}")),
    ),
    "alone": (Message("user", "", images=(SECOND,)), turn("user", SECOND)),
    "markers in the text": (
        Message("user", "<|image_pad|>?", images=(THIRD,)),
        turn("user", THIRD, *said("<|image_pad|>?")),
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_reply_to_pictures_is_that_of_transformers(engine: Engine, model: PreTrainedModel, name: str) -> None:
    message, rows = QUESTIONS[name]
    expected = transformers_reply(model, [*rows, START, *said("assistant\n")], 6)
    ours = rows_after(engine, [message])
    assert ours == expected[: len(ours)] and len(ours) >= len(expected) - 1


def test_a_picture_in_the_second_turn_is_that_of_transformers_and_keeps_the_first(
    engine: Engine, model: PreTrainedModel
) -> None:
    first = [Message("user", "What?", images=(FIRST,))]
    rows_after(engine, first)
    messages = [*first, Message("assistant", "A mill."), Message("user", "And this?", images=(SECOND, FIRST))]
    rows = turn("user", FIRST, *said("What?")) + turn("assistant", *said("A mill."))
    rows += turn("user", SECOND, FIRST, *said("And this?"))
    expected = transformers_reply(model, [*rows, START, *said("assistant\n")], 6)
    kept = next(event.cached for event in engine.chat(messages, GREEDY) if isinstance(event, PrefillProgress))
    ours = [token if token >= 0 else PAD for token in engine._cache.tokens]
    assert ours == expected[: len(ours)]
    assert kept > rows.index(FIRST) + 1


def test_the_picture_makes_a_difference(engine: Engine) -> None:
    replies = [rows_after(engine, [Message("user", "What?", images=(png(24, 24, seed),))])[-5:] for seed in range(4)]
    assert len({tuple(reply) for reply in replies}) > 1


def test_a_cap_on_patches_shortens_the_prompt(folder: Path, model: PreTrainedModel) -> None:
    lengths = []
    for cap in (16, 64, None):
        with Engine.load(folder / "tiny.gguf", Budgets(threads=1, context=256, max_patches=cap)) as made:
            lengths.append(len(rows_after(made, [Message("user", "?", images=(png(44, 44),))])))
    assert lengths[0] < lengths[1] < lengths[2]


def test_progress_tells_before_which_rows_a_picture_is_looked_at(engine: Engine) -> None:
    message, rows = QUESTIONS["among the text"]
    progress = [event for event in engine.chat([message], GREEDY) if isinstance(event, PrefillProgress)]
    ours = engine._cache.tokens
    starts = [at for at, token in enumerate(ours) if token < 0 <= ours[at - 1]]
    assert [event.done for event in progress if event.picture] == starts
    assert len(starts) == sum(isinstance(row, Image) for row in rows) == 2
    assert progress[-1].done == progress[-1].total and not progress[-1].picture


class Late(Cancel):
    """Comes when it was asked for so many times whether it came."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    def check(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Cancelled


def test_a_reply_can_be_cancelled_while_a_picture_is_looked_at(engine: Engine, model: PreTrainedModel) -> None:
    message, rows = QUESTIONS["among the text"]
    prepared = sum(isinstance(row, Image) for row in rows)
    rows_after(engine, [Message("user", "?", images=(SECOND,))])  # so that the tower is there
    *_, last = engine.chat([message], GREEDY, cancel=Late(prepared + 2))  # between two layers
    assert isinstance(last, Finished) and last.reason == "cancelled"
    assert list(engine._cache.tokens) == rows[: len(engine._cache.tokens)] == rows[: rows.index(FIRST)]
    expected = transformers_reply(model, [*rows, START, *said("assistant\n")], 6)
    ours = rows_after(engine, [message])
    assert ours == expected[: len(ours)]


def test_a_reply_can_be_cancelled_while_the_tower_is_read(engine: Engine) -> None:
    asked, cancel = [Message("user", "?", images=(FIRST,))], Cancel()
    cancel.set()
    for way in (cancel, Late(3)):
        (last,) = engine.chat(asked, GREEDY, cancel=way)
        assert isinstance(last, Finished) and last.reason == "cancelled" and last.usage.completion_tokens == 0
        assert engine.memory.vision == 0 and not len(engine._cache)
    assert rows_after(engine, asked)
    assert engine.memory.vision > engine.info.vision_bytes


def test_a_cancelled_reply_prepares_no_more_pictures(engine: Engine) -> None:
    rows_after(engine, [Message("user", "?", images=(FIRST,))])
    held = engine.memory.vision
    images = (SECOND, Image(b"", "never read.png"))
    (last,) = engine.chat([Message("user", "?", images=images)], GREEDY, cancel=Late(2))
    assert isinstance(last, Finished) and last.reason == "cancelled"
    assert engine.memory.vision == held


def test_the_tower_and_the_pictures_are_counted(engine: Engine) -> None:
    before = engine.memory
    assert before.vision == 0
    rows_after(engine, [Message("user", "?", images=(FIRST, SECOND))])
    both = engine.memory
    assert both.weights == before.weights and both.vision > engine.info.vision_bytes
    assert both.total == both.weights + both.kv + both.activations + both.vision + both.tables
    rows_after(engine, [Message("user", "?", images=(FIRST,))])
    values_of_a_patch = 4 * 3 * 4 * 4
    area = 6 * 2 * 4  # SECOND's tokens, in patches
    assert both.vision - engine.memory.vision == area * values_of_a_patch
    engine.close()
    assert engine.memory.total == 0


def test_the_places_of_a_conversation_with_pictures_are_counted_once_they_are_kept(engine: Engine) -> None:
    own = table_bytes(engine._model.tables.values())
    assert engine.memory.tables == own < engine.plan.tables
    for images in ((FIRST,), (SECOND, FIRST), ()):
        rows_after(engine, [Message("user", "?", images=images)])
        held = own + table_bytes(engine._forward._tables.values())
        assert engine.memory.tables == held == engine.plan.tables


def test_the_prompt_with_its_pictures_must_fit(folder: Path, model: PreTrainedModel) -> None:
    with (
        Engine.load(folder / "tiny.gguf", Budgets(threads=1, context=40)) as made,
        pytest.raises(ContextError, match=r"context holds 40 .* leave pictures away"),
    ):
        made.chat([Message("user", "?", images=(png(44, 44),))], GREEDY)


def test_pictures_beyond_the_context_are_not_prepared(engine: Engine) -> None:
    many = [png(40, 48, seed) for seed in range(20)]
    with pytest.raises(ContextError, match=r"at least \d+ tokens, but the context holds 256"):
        engine.chat([Message("user", "?", images=(*many, Image(b"", "never read.png")))], GREEDY)
    assert engine.memory.vision < 2 * engine.info.vision_bytes
    assert rows_after(engine, [Message("user", "?", images=(many[0],))])


def test_a_damaged_picture_is_named_and_the_conversation_goes_on(engine: Engine) -> None:
    with pytest.raises(ImageError, match=r"cut\.png"):
        engine.chat([Message("user", "?", images=(Image(FIRST.data[:200], "cut.png"),))], GREEDY)
    assert rows_after(engine, [Message("user", "?")])


def test_a_description_tells_of_the_tower_and_the_memory(folder: Path, model: PreTrainedModel) -> None:
    info = describe(folder / "tiny.gguf")
    assert info.vision == "qwen3vl_merger"
    assert info.vision_bytes > 0 and info.weight_bytes > 0
    assert info.kv_bytes == 2 * 2 * 2 * 16 * 2 * 256


@pytest.mark.parametrize(("kv", "context"), [("f32", 200), ("f16", 64), ("f16", None)])
def test_a_description_has_the_cache_that_is_then_taken(
    folder: Path, model: PreTrainedModel, kv: str, context: int | None
) -> None:
    budgets = Budgets(threads=1, context=context, kv=kv)
    info = describe(folder / "tiny.gguf", budgets)
    with Engine.load(folder / "tiny.gguf", budgets) as made:
        assert info == made.info
        assert (info.context, info.kv_bytes) == (made.context_length, made.memory.kv)


def test_a_model_without_a_tower_says_so(tmp_path: Path) -> None:
    with (
        Engine.load(write_tiny_chat(tmp_path / "tiny.gguf"), Budgets(threads=1)) as made,
        pytest.raises(SettingsError, match="no vision tower"),
    ):
        made.chat([Message("user", "?", images=(FIRST,))], GREEDY)


def test_a_tower_of_another_family_or_width_is_refused_with_both_files(
    folder: Path, model: PreTrainedModel, tmp_path: Path
) -> None:
    other = gemma3()
    fill(other.modules)
    write(tmp_path / "mmproj-other.gguf", other)
    with pytest.raises(UnsupportedModelError, match=r"mmproj-other\.gguf.*gemma3.*tiny\.gguf is of qwen3vl"):
        Engine.load(folder / "tiny.gguf", BUDGETS, mmproj=tmp_path / "mmproj-other.gguf")
    wide = qwen(out_hidden_size=48)
    fill(wide.modules)
    wide.keys["clip.vision.projection_dim"] = 48
    write(tmp_path / "mmproj-wide.gguf", wide)
    with pytest.raises(
        UnsupportedModelError, match=r"mmproj-wide\.gguf makes rows of 48 .*tiny\.gguf takes rows of 40"
    ):
        Engine.load(folder / "tiny.gguf", BUDGETS, mmproj=tmp_path / "mmproj-wide.gguf")


def test_a_tower_with_other_levels_is_refused_at_once(folder: Path, model: PreTrainedModel, tmp_path: Path) -> None:
    flat = qwen(deepstack_visual_indexes=[1])
    fill(flat.modules)
    write(tmp_path / "mmproj-flat.gguf", flat)
    with pytest.raises(UnsupportedModelError, match=r"1 DeepStack levels, but tiny\.gguf takes 2"):
        Engine.load(folder / "tiny.gguf", BUDGETS, mmproj=tmp_path / "mmproj-flat.gguf")


def test_of_several_towers_beside_a_model_the_first_that_fits_is_taken(
    folder: Path, model: PreTrainedModel, tmp_path: Path
) -> None:
    shutil.copy(folder / "tiny.gguf", tmp_path)
    flat = qwen(deepstack_visual_indexes=[1])
    fill(flat.modules)
    write(tmp_path / "mmproj-a.gguf", flat)
    (tmp_path / "mmproj-b.gguf").write_bytes((folder / "mmproj-tiny.gguf").read_bytes()[:999])
    with Engine.load(tmp_path / "tiny.gguf", BUDGETS) as made, pytest.raises(SettingsError, match=r"mmproj-a\.gguf"):
        made.chat([Message("user", "?", images=(FIRST,))], GREEDY)
    shutil.copy(folder / "mmproj-tiny.gguf", tmp_path / "mmproj-z.gguf")
    assert describe(tmp_path / "tiny.gguf").vision_bytes == describe(folder / "tiny.gguf").vision_bytes > 0


def test_of_several_pictures_the_one_that_cannot_be_taken_is_named(engine: Engine) -> None:
    with pytest.raises(ImageError, match=r"^2010x2\.png: It has 2010 × 2 pixels"):
        engine.chat([Message("user", "?", images=(FIRST, png(2010, 2)))], GREEDY)
    assert rows_after(engine, [Message("user", "?", images=(png(1, 1),))])


def test_a_tower_is_no_model(folder: Path, model: PreTrainedModel) -> None:
    for load in (Engine.load, describe):
        with pytest.raises(UnsupportedModelError, match=r"mmproj-tiny\.gguf: This is the vision tower of a model"):
            load(folder / "mmproj-tiny.gguf")


def test_a_tower_that_is_none_is_refused(folder: Path, model: PreTrainedModel) -> None:
    with pytest.raises(ModelFileError, match="not a vision tower"):
        Engine.load(folder / "tiny.gguf", BUDGETS, mmproj=folder / "tiny.gguf")
