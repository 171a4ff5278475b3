"""Checkpoints of mixtures, their experts apart as they are published or together: Transformers' own logits, and the
bits of the same weights in a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats import open_index
from tests.engine.formats.checkpoints import change, write_checkpoint
from tests.engine.formats.test_checkpoint_logits import ENDS, logits
from tests.engine.models.judge import tolerance, transformers_logits
from tests.engine.models.mixtures import tiny_mixture, write_mixture

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
TENSORS = "model.safetensors"
FIRST = "model.layers.0.mlp.experts."


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "山 é", tiny_mixture("qwen3moe", num_experts=4, **ENDS))


def rewrite(folder: Path, change_tensors) -> None:
    tensors = load_file(folder / TENSORS)
    change_tensors(tensors)
    save_file(tensors, folder / TENSORS)


def join(tensors: dict[str, torch.Tensor]) -> None:
    """The experts of each layer together, as newer checkpoints have them."""
    for at in {name.partition("experts.")[0] + "experts." for name in tensors if ".experts." in name}:
        count = len([name for name in tensors if name.startswith(at)]) // 3
        gate, up, down = (
            torch.stack([tensors.pop(f"{at}{number}.{part}_proj.weight") for number in range(count)])
            for part in ("gate", "up", "down")
        )
        tensors[f"{at}gate_up_proj"] = torch.cat([gate, up], dim=1)
        tensors[f"{at}down_proj"] = down


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
@pytest.mark.parametrize("architecture", ["qwen3moe", "llama"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_apart_give_the_bits_of_the_same_weights_in_gguf(
    dtype: str, architecture: str, shard: str, tmp_path: Path
) -> None:
    model = tiny_mixture(architecture, **ENDS)
    write_checkpoint(tmp_path / "checkpoint", model, dtype=DTYPES[dtype], shard=shard)
    write_mixture(tmp_path / "tiny.gguf", architecture, model, dtype)
    index = open_index(tmp_path / "checkpoint")
    assert (len(index.paths) > 1) == (shard == "60KB")
    ours, truth = logits(index), transformers_logits(model)
    assert np.abs(ours - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()
    assert np.array_equal(ours.view(np.uint32), logits(open_index(tmp_path / "tiny.gguf")).view(np.uint32))


def test_experts_together_give_the_bits_of_experts_apart(checkpoint: Path) -> None:
    apart = logits(open_index(checkpoint))
    rewrite(checkpoint, join)
    index = open_index(checkpoint)
    assert index.tensors["blk.1.ffn_gate_up_exps.weight"].shape == (4, 64, 64)
    assert np.array_equal(logits(index).view(np.uint32), apart.view(np.uint32))


@pytest.mark.parametrize("kept", [True, False])
def test_weights_are_divided_by_their_sum_where_the_file_says_so(kept: bool, tmp_path: Path) -> None:
    model = tiny_mixture("qwen3moe", norm_topk_prob=kept, **ENDS)
    truth = transformers_logits(model)
    ours = logits(open_index(write_checkpoint(tmp_path / "checkpoint", model)))
    assert np.abs(ours - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()


def test_spans_of_experts_are_those_of_the_file(checkpoint: Path) -> None:
    info = open_index(checkpoint).tensors["blk.0.ffn_down_exps.weight"]
    expected = load_file(checkpoint / TENSORS)
    for number, span in enumerate(info.spans):
        data = np.fromfile(span.path, np.float32, span.nbytes // 4, offset=span.offset)
        assert np.array_equal(data, expected[f"{FIRST}{number}.down_proj.weight"].numpy().ravel())
    assert sum(span.nbytes for span in info.spans) == info.nbytes


def test_a_missing_or_other_expert_is_named(checkpoint: Path) -> None:
    rewrite(checkpoint, lambda tensors: tensors.update({f"{FIRST}2.up_proj.weight": torch.zeros(32, 32)}))
    with pytest.raises(ModelFileError, match=r"experts\.2\.up_proj\.weight.* \[32, 32\] of F32.* \[32, 64\] of F32"):
        open_index(checkpoint)
    rewrite(checkpoint, lambda tensors: tensors.pop(f"{FIRST}2.up_proj.weight"))
    with pytest.raises(ModelFileError, match=r"Expert 2 of blk\.0\.ffn_up_exps\.weight is missing"):
        open_index(checkpoint)


def test_experts_both_apart_and_together_are_refused(checkpoint: Path) -> None:
    rewrite(checkpoint, lambda tensors: tensors.update({f"{FIRST}down_proj": torch.zeros(4, 64, 32)}))
    with pytest.raises(ModelFileError, match=r"experts of blk\.0\.ffn_down_exps\.weight together"):
        open_index(checkpoint)


@pytest.mark.parametrize(("key", "value"), [("decoder_sparse_step", 2), ("mlp_only_layers", [1])])
def test_layers_without_experts_are_refused(key: str, value: object, checkpoint: Path) -> None:
    change(checkpoint / "config.json", **{key: value})
    with pytest.raises(UnsupportedModelError, match=key):
        open_index(checkpoint)


@pytest.mark.parametrize("value", [None, 0, "8", 5, 1 << 40])
def test_a_count_of_experts_that_cannot_be_is_refused(value: object, checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    key = next(key for key in ("num_experts", "num_local_experts") if key in config)
    change(checkpoint / "config.json", **{key: value})
    with pytest.raises(ModelFileError):
        logits(open_index(checkpoint))
