"""The files of vision towers: which one belongs to a model, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import ImageError, ModelFileError, UnsupportedModelError
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.vision.projector import all_beside, read_projector
from tests.engine.vision.towers import fill, gemma3, gemma4, idefics3, load, picture, qwen, write
from tests.tiny import tiny, write_gguf

FAMILIES = {"qwen3_vl": qwen, "gemma3": gemma3, "gemma4": gemma4, "idefics3": idefics3}


@pytest.mark.parametrize(
    ("model", "files", "chosen"),
    [
        ("gemma-3-4b-it-Q4_K_M.gguf", ["other.gguf"], None),
        ("gemma-3-4b-it-Q4_K_M.gguf", ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        ("Qwen3-VL-4B-Q4_K_M.gguf", ["mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], "mmproj-F16.gguf"),
        ("Qwen3-VL-4B-Q4_K_M.gguf", ["mmproj-BF16.gguf", "mmproj-F32.gguf"], "mmproj-BF16.gguf"),
        ("m.gguf", ["mmproj-F32.gguf", "mmproj-Q8_0.gguf"], "mmproj-Q8_0.gguf"),
        ("m.gguf", ["mmproj-Q4_0.gguf", "mmproj-F32.gguf"], "mmproj-F32.gguf"),
        (
            "Qwen3-VL-8B-Instruct-Q8_0.gguf",
            ["mmproj-Qwen3-VL-4B-Instruct-F16.gguf", "mmproj-Qwen3-VL-8B-Instruct-Q8_0.gguf"],
            "mmproj-Qwen3-VL-8B-Instruct-Q8_0.gguf",
        ),
        (
            "gemma-3-4b-it.gguf",
            ["gemma-3-4b-it.mmproj-f16.gguf", "mmproj-qwen-f16.gguf"],
            "gemma-3-4b-it.mmproj-f16.gguf",
        ),
        ("山 é.gguf", ["MMPROJ-山 é-F16.GGUF"], "MMPROJ-山 é-F16.GGUF"),
        ("mmproj-F16.gguf", ["mmproj-F32.gguf"], "mmproj-F32.gguf"),
    ],
)
def test_the_file_beside_a_model_is_chosen_by_name_then_by_precision(
    model: str, files: list[str], chosen: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mmproj-folder.gguf").mkdir()
    for name in (model, *files):
        (tmp_path / name).write_bytes(b"GGUF")
    assert all_beside(tmp_path / model)[:1] == ([] if chosen is None else [tmp_path / chosen])


def test_nothing_lies_beside_a_model_whose_folder_is_gone(tmp_path: Path) -> None:
    assert all_beside(tmp_path / "gone" / "model.gguf") == []


def refused(tmp_path: Path, family: str = "qwen3_vl", **changes: Any) -> str:
    """The sentence with which a tower is refused; it names its file."""
    path = write(tmp_path / "mmproj-bad.gguf", FAMILIES[family](), **changes)
    with pytest.raises((ModelFileError, UnsupportedModelError)) as error:
        load(path, PlainOps())
    assert "mmproj-bad.gguf" in str(error.value)
    return str(error.value)


def test_an_unknown_projector_is_refused_with_the_list_of_those_known(tmp_path: Path) -> None:
    message = refused(tmp_path, **{"clip.projector_type": "ldpv2"})
    assert "'ldpv2'" in message and "gemma3, gemma4v, idefics3, qwen3vl_merger" in message


def test_a_file_without_a_projector_is_refused(tmp_path: Path) -> None:
    assert "clip.vision.projector_type" in refused(tmp_path, **{"clip.projector_type": ...})


def test_a_file_for_sound_alone_is_refused(tmp_path: Path) -> None:
    assert "has_vision_encoder" in refused(tmp_path, **{"clip.has_vision_encoder": False})
    assert "has_vision_encoder" in refused(tmp_path, **{"clip.has_vision_encoder": "yes"})


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "text.gguf", tiny("llama"))
    with pytest.raises(ModelFileError, match=r"text\.gguf is not a vision tower"):
        read_projector(tmp_path / "text.gguf")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "key",
    ["projection_dim", "embedding_length", "block_count", "patch_size", "attention.head_count", "feed_forward_length"],
)
def test_numbers_that_are_missing_or_out_of_bounds_are_refused(family: str, key: str, tmp_path: Path) -> None:
    for value in (..., 0, 2**31 - 1, "three", 0.5, True, [3]):
        assert f"clip.vision.{key}" in refused(tmp_path, family, **{f"clip.vision.{key}": value})


@pytest.mark.parametrize(
    "changes",
    [
        {"clip.vision.image_mean": [0.5, 0.5]},
        {"clip.vision.image_mean": ["a", "b", "c"]},
        {"clip.vision.image_mean": [0.5, float("nan"), 0.5]},
        {"clip.vision.image_std": [0.5, 0.0, 0.5]},
        {"clip.vision.image_std": ...},
        {"clip.vision.attention.layer_norm_epsilon": float("inf")},
        {"clip.vision.attention.head_count": 3},
        {"clip.vision.attention.head_count": 16},
        {"clip.vision.spatial_merge_size": 17},
        {"clip.vision.is_deepstack_layers": [True, True, True]},
        {"clip.vision.is_deepstack_layers": [True, False]},
        {"clip.vision.image_min_pixels": 2**25},
        {"clip.use_gelu": False},
        {"clip.use_silu": True},
    ],
    ids=str,
)
def test_metadata_that_contradicts_itself_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    key = next(iter(changes))
    message = refused(tmp_path, **changes)
    assert key in message or "limits on pictures" in message or "use_gelu" in message


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_that_differ_from_the_weights_name_the_tensor(family: str, tmp_path: Path) -> None:
    for key, value in (("projection_dim", 44), ("feed_forward_length", 68), ("patch_size", 8)):
        assert "Tensor " in refused(tmp_path, family, **{f"clip.vision.{key}": value})
    missing = {"clip.vision.block_count": 8, "clip.vision.is_deepstack_layers": ...}
    assert "has no tensor v.blk." in refused(tmp_path, family, **missing)


def test_layers_that_are_not_counted_are_refused(tmp_path: Path) -> None:
    assert "v.blk.1." in refused(tmp_path, "gemma4", **{"clip.vision.block_count": 1})


def test_a_packed_projection_that_lies_by_columns_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "packed.gguf", "clip")
    writer.add_string("clip.projector_type", "gemma3")
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("mm.input_projection.weight", gguf.quantize(np.zeros((32, 64), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match=r"mm\.input_projection\.weight in packed\.gguf is packed in Q8_0"):
        read_projector(tmp_path / "packed.gguf")


def test_what_belongs_to_sound_is_left_on_disk(tmp_path: Path) -> None:
    family = gemma4()
    fill(family.modules)
    sound = {name: np.zeros((4, 4), np.float32) for name in ("a.blk.0.attn_q.weight", "mm.a.fc.weight")}
    pictures = write(tmp_path / "mmproj.gguf", family)
    both = write(tmp_path / "both.gguf", family, more=sound, **{"clip.audio.projector_type": "gemma4a"})
    assert read_projector(both).tensors.keys() == read_projector(pictures).tensors.keys()
    seen, outputs = picture(family, (3, 6)), []
    for file in (pictures, both):
        ops = ReferenceOps()
        outputs.append(np.array(ops.host(load(file, ops).encode(ops, seen))))
    assert np.array_equal(*outputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_without_a_use_is_refused(family: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mmproj.gguf", FAMILIES[family](), more={"v.blk.0.ls1.weight": np.ones(32, np.float32)})
    with pytest.raises(ModelFileError, match=r"mmproj\.gguf holds v\.blk\.0\.ls1\.weight"):
        load(path, PlainOps())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cancelled_picture_ends_before_its_next_layer(family: str, tmp_path: Path) -> None:
    made = FAMILIES[family]()
    ops, cancel = PlainOps(), Cancel()
    tower = load(write(tmp_path / "mmproj.gguf", made), ops)
    cancel.set()
    with pytest.raises(Cancelled):
        tower.encode(ops, picture(made, (8, 8) if family in ("gemma3", "idefics3") else (6, 6)), cancel)


def test_a_picture_longer_than_the_known_positions_is_refused(tmp_path: Path) -> None:
    tower = load(write(tmp_path / "mmproj.gguf", gemma4(position_embedding_size=60)), PlainOps())
    assert max(tower.prepare(np.zeros((20, 20, 3), np.uint8)).grid) <= 60
    with pytest.raises(ImageError, match=r"840 patches along a side.*knows 60 positions: crop it"):
        tower.prepare(np.zeros((20, 20_000, 3), np.uint8))


def test_a_picture_has_at_most_4096_patches_unless_more_are_asked_for(tmp_path: Path) -> None:
    tower = load(write(tmp_path / "mmproj.gguf", qwen()), PlainOps())
    image = np.zeros((400, 400, 3), np.uint8)
    assert len(tower.prepare(image).pixels) == 64**2
    assert len(tower.prepare(image, 10_000).pixels) == 100**2
