"""Vision towers out of checkpoints as Transformers publishes them, against Transformers."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from engine.errors import ModelFileError, UnsupportedModelError
from engine.kernels.reference import ReferenceOps
from engine.vision.patches import Picture
from engine.vision.projector import all_beside, read_projector
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.formats.checkpoints import change
from tests.engine.vision.towers import HALF, TEXT_SIZE, Family, fill, gemma3, load, picture, qwen, write

TEXT = {"hidden_size": TEXT_SIZE, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT |= {"num_key_value_heads": 1, "head_dim": 20, "vocab_size": 32}
KINDS = ("qwen3_vl", "qwen3_5", "gemma3")
GRIDS = {"qwen3_vl": (4, 6), "qwen3_5": (6, 2), "gemma3": (8, 8)}


def made(kind: str) -> Family:
    family = gemma3() if kind == "gemma3" else qwen(kind)
    fill(family.modules)
    return family


def whole_model(kind: str, family: Family) -> PreTrainedModel:
    """The tower within its model, as it is published."""
    vision = family.modules["model"].config.to_dict()
    if kind == "gemma3":
        model = Gemma3ForConditionalGeneration(
            Gemma3Config(text_config=TEXT, vision_config=vision, mm_tokens_per_image=4)
        )
        model.model.vision_tower.load_state_dict(family.modules["model"].state_dict())
        model.model.multi_modal_projector.load_state_dict(family.modules["multi_modal_projector"].state_dict())
        return model
    if kind == "qwen3_5":
        linear = {
            "linear_num_key_heads": 1,
            "linear_num_value_heads": 1,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        }
        model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=TEXT | linear, vision_config=vision))
    else:
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=TEXT, vision_config=vision))
    model.model.visual.load_state_dict(family.modules["model"].state_dict())
    return model


def publish(folder: Path, kind: str, family: Family, *, dtype: torch.dtype = torch.float32, shard: str = "5GB") -> Path:
    """Write the checkpoint, and give the tower the rounded weights that it now holds."""
    whole_model(kind, family).to(dtype).save_pretrained(folder, max_shard_size=shard)
    with torch.no_grad():
        for values in family.modules.parameters():
            values.copy_(values.to(dtype))
    processor = {"image_mean": list(HALF), "image_std": list(HALF)}
    if kind != "gemma3":
        processor["size"] = {"shortest_edge": 64, "longest_edge": 1024}
    change(folder / "preprocessor_config.json", **processor)
    return folder


def seen_by(kind: str, family: Family) -> Picture:
    """The convolution of a checkpoint looks at both frames at once."""
    frames = 1 if kind == "gemma3" else 2
    return picture(replace(family, patches=replace(family.patches, frames=frames)), GRIDS[kind])


def check(folder: Path, family: Family, seen: Picture, device: str) -> None:
    with torch.no_grad():
        wanted = family.truth(seen)
    with closing(DEVICES[device]()) as ops:
        got = ops.host(load(folder, ops).encode(ops, seen))
        assert np.abs(got - wanted).max() <= 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoints_tower_agrees_with_transformers(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    family = made(kind)
    publish(tmp_path, kind, family, dtype=dtype)
    for device in DEVICES:
        check(tmp_path, family, seen_by(kind, family), device)


def test_a_checkpoint_in_many_files_agrees_with_transformers(tmp_path: Path) -> None:
    family = made("qwen3_vl")
    publish(tmp_path, "qwen3_vl", family, shard="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    check(tmp_path, family, seen_by("qwen3_vl", family), "reference")


@pytest.mark.parametrize("device", CONTRACT)
def test_gemma3_gives_the_same_bits_as_from_its_gguf_file(device: str, tmp_path: Path) -> None:
    family = made("gemma3")
    folder = publish(tmp_path / "checkpoint", "gemma3", family)
    # The converter's least precision for the projection is that of the file; both hold F32 here.
    file = write(tmp_path / "mmproj.gguf", family)
    outputs = []
    for path in (folder, file):
        with closing(DEVICES[device]()) as ops:
            outputs.append(np.array(ops.host(load(path, ops).encode(ops, seen_by("gemma3", family)))))
    assert np.array_equal(outputs[0].view(np.uint32), outputs[1].view(np.uint32))


def test_a_processors_numbers_are_taken(tmp_path: Path) -> None:
    publish(tmp_path, "qwen3_vl", qwen())
    pixels = np.zeros((160, 160, 3), np.uint8)
    assert load(tmp_path, ReferenceOps()).prepare(pixels).grid == (8, 8)
    # What the newer file says replaces what the older one does.
    inner = {"image_mean": [0.0] * 3, "size": {"shortest_edge": 64, "longest_edge": 576}}
    change(tmp_path / "processor_config.json", image_processor=inner)
    seen = load(tmp_path, ReferenceOps()).prepare(pixels + 255)
    assert seen.grid == (6, 6) and set(seen.pixels.ravel().tolist()) == {2.0}


def test_a_checkpoint_is_found_by_its_folder_and_by_its_files(tmp_path: Path) -> None:
    publish(tmp_path, "gemma3", gemma3())
    assert all_beside(tmp_path) == all_beside(tmp_path / "model.safetensors") == [tmp_path]
    change(tmp_path / "config.json", vision_config=...)
    assert all_beside(tmp_path) == []
    change(tmp_path / "config.json", vision_config={}, architectures=["LlamaForCausalLM"])
    assert all_beside(tmp_path) == []
    (tmp_path / "config.json").unlink()
    assert all_beside(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "changes", "part"),
    [
        ("qwen3_vl", {"hidden_act": "silu"}, "'silu' (hidden_act)"),
        ("qwen3_vl", {"temporal_patch_size": 1}, "two frames"),
        ("qwen3_vl", {"depth": "three"}, "depth in vision_config in config.json"),
        ("qwen3_vl", {"depth": 2**40}, "clip.vision.block_count"),
        ("qwen3_vl", {"depth": 2}, "v.blk.2."),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 0]}, "deepstack_visual_indexes"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0, 7]}, "v.deepstack.7."),
        ("qwen3_vl", {"deepstack_visual_indexes": list(range(9, 2**19)), "depth": 4096}, "deepstack_visual_indexes"),
        ("qwen3_vl", {"deepstack_visual_indexes": [0]}, "deepstack_merger_list.1"),
        ("qwen3_vl", {"num_position_embeddings": 36}, "v.position_embd.weight"),
        ("qwen3_vl", {"num_position_embeddings": 2**62}, "clip.vision.image_size"),
        ("qwen3_vl", {"num_position_embeddings": -4}, "clip.vision.image_size"),
        ("qwen3_vl", {"out_hidden_size": 44}, "v.deepstack.0.fc2.weight"),
        ("gemma3", {"patch_size": 0}, "patches of 0"),
        ("gemma3", {"image_size": 36}, "patches of 4"),
        ("gemma3", {"hidden_size": 36}, "v.patch_embd"),
        ("gemma3", {"layer_norm_eps": 0.0}, "layer_norm_epsilon"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_configuration_that_does_not_fit_is_refused(
    kind: str, changes: dict[str, object], part: str, tmp_path: Path
) -> None:
    publish(tmp_path, kind, made(kind))
    vision = json.loads((tmp_path / "config.json").read_text("utf-8"))["vision_config"]
    change(tmp_path / "config.json", vision_config=vision | changes)
    with pytest.raises((ModelFileError, UnsupportedModelError)) as error:
        load(tmp_path, ReferenceOps())
    assert part in str(error.value)


def test_a_checkpoint_without_a_tower_or_a_processor_is_refused(tmp_path: Path) -> None:
    publish(tmp_path, "gemma3", made("gemma3"))
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ModelFileError, match=r"has no preprocessor_config\.json"):
        read_projector(tmp_path)
    change(tmp_path / "config.json", architectures=["Idefics3ForConditionalGeneration"])
    with pytest.raises(UnsupportedModelError, match=r"Gemma4ForConditionalGeneration, Qwen3VLFor"):
        read_projector(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vision_tower.", "vision_tower.vision_model."),
        ("vision_tower.", "model.vision_tower."),
        ("multi", "model.multi"),
    ],
)
def test_names_of_older_and_newer_checkpoints_are_known(old: str, new: str, tmp_path: Path) -> None:
    family = made("gemma3")
    file = publish(tmp_path, "gemma3", family) / "model.safetensors"
    tensors = {
        name.replace(old, new, 1) if name.startswith(old) else name: values for name, values in load_file(file).items()
    }
    save_file(tensors, file)
    check(tmp_path, family, seen_by("gemma3", family), "reference")


def test_a_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    file = publish(tmp_path, "gemma3", made("gemma3")) / "model.safetensors"
    tensors = load_file(file)
    tensors["model.vision_tower.post_layernorm.bias"] = tensors["vision_tower.post_layernorm.bias"].clone()
    save_file(tensors, file)
    with pytest.raises(ModelFileError, match=r"post_layernorm\.bias' in model\.safetensors is there twice"):
        read_projector(tmp_path)
