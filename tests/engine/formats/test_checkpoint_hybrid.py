"""Checkpoints of Qwen3.5 as Transformers saves them: its own logits, and the bits of the same weights in GGUF."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from engine import Engine, Message, Settings, models
from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.memory import tensor_reader
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.types import Finished, Text
from tests.engine.formats.checkpoints import byte_level, change, write_checkpoint
from tests.engine.formats.test_checkpoint_logits import ENDS, logits
from tests.engine.models.judge import tolerance, transformers_logits
from tests.tiny import tiny, write_gguf

SHAPES: dict[str, dict[str, object]] = {
    "shared key heads": {},
    "three value heads for a key head": {"linear_num_value_heads": 6},
    "as many key heads as value heads": {"linear_num_key_heads": 4},
    "one key head": {"linear_num_key_heads": 1},
    "wide value heads": {"linear_value_head_dim": 40},
    "layers in another order": {"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"]},
    "tied, with biases": {"tie_word_embeddings": True, "attention_bias": True},
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "patch_size": 4,
}


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_near(ours: np.ndarray, truth: np.ndarray) -> None:
    assert np.abs(ours - truth).max() <= tolerance("native", "f32") * np.abs(truth).max()


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
@pytest.mark.parametrize("shape", SHAPES)
def test_f32_gives_the_bits_of_the_same_weights_in_gguf(shape: str, shard: str, folder: Path) -> None:
    model = tiny("qwen35", **ENDS, **SHAPES[shape])
    # In this order, since decay rates that have gone through their logarithms would come back rounded.
    write_checkpoint(folder / "checkpoint", model, shard=shard)
    write_gguf(folder / "tiny.gguf", model)
    ours = logits(open_index(folder / "checkpoint"))
    assert_near(ours, transformers_logits(model))
    assert np.array_equal(ours.view(np.uint32), logits(open_index(folder / "tiny.gguf")).view(np.uint32))


@pytest.mark.parametrize(("encoding", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_half_precision_agrees_with_transformers(encoding: str, dtype: torch.dtype, folder: Path) -> None:
    model = tiny("qwen35", **ENDS)
    write_checkpoint(folder, model, dtype=dtype, shard="60KB")
    index = open_index(folder)
    assert {info.encoding for info in index.tensors.values()} == {encoding}
    assert_near(logits(index), transformers_logits(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mixtures_give_the_bits_of_the_same_weights_in_gguf(dtype: torch.dtype, folder: Path) -> None:
    model = tiny("qwen35moe", **ENDS)
    write_checkpoint(folder / "checkpoint", model, dtype=dtype, shard="60KB")
    change(folder / "checkpoint" / "config.json", intermediate_size=...)  # no key of this family
    ours = logits(open_index(folder / "checkpoint"))
    assert_near(ours, transformers_logits(model))
    if dtype == torch.float32:
        write_gguf(folder / "tiny.gguf", model)
        assert np.array_equal(ours.view(np.uint32), logits(open_index(folder / "tiny.gguf")).view(np.uint32))


@pytest.mark.parametrize("piece", [1, 100, 1000])
def test_heads_come_into_their_order_however_much_is_read_at_once(
    piece: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(folder, tiny("qwen35", **ENDS))
    index = open_index(folder)
    whole = logits(index)
    monkeypatch.setattr(tensor_reader, "PIECE", piece)
    assert np.array_equal(logits(index).view(np.uint32), whole.view(np.uint32))


def test_every_byte_of_a_tensor_is_read_once(folder: Path) -> None:
    write_checkpoint(folder, tiny("qwen35", **ENDS))
    index = open_index(folder)
    with closing(NativeOps(1)) as ops, closing(WeightStore(index, ops, Meter())) as store:
        models.build(index.metadata, store, context=8)
        store.require_all_used()
    assert store.bytes_read == store.total
    for info in index.tensors.values():
        for runs, extent in ((info.runs, info.shape[0]), (info.column_runs, info.shape[-1])):
            covered = [at for start, stop in runs for at in range(start, stop)]
            assert not runs or sorted(covered) == list(range(extent))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A model that sees pictures and drafts, and its logits for text."""
    text = tiny("qwen35", **ENDS).config.to_dict()
    ids = {"image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}
    torch.manual_seed(5)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=VISION, **ids)).eval()
    with torch.no_grad():
        for name, values in model.model.language_model.named_parameters():
            if values.ndim == 2:
                values.normal_(std=1.5 / values.shape[1] ** 0.5)
            elif "norm" in name:
                values.add_(torch.randn(values.shape) * 0.2)
        model.lm_head.weight.normal_(std=0.2)
    folder = write_checkpoint(tmp_path_factory.mktemp("published"), model)
    weights = load_file(folder / "model.safetensors")
    weights["mtp.fc.weight"] = torch.ones(64, 128)
    weights["mtp.layers.0.self_attn.q_proj.weight"] = torch.ones(128, 64)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder, transformers_logits(model)


def test_the_text_part_of_a_model_that_sees_agrees_with_transformers(published: tuple[Path, np.ndarray]) -> None:
    folder, truth = published
    index = open_index(folder)
    assert index.metadata["general.architecture"] == "qwen35"
    assert index.metadata["qwen35.rope.dimension_sections"] == [11, 11, 10, 0]
    assert_near(logits(index), truth)


@pytest.mark.parametrize(
    ("changes", "told", "kind"),
    [
        ({"linear_num_key_heads": 3}, "3 key heads cannot share", ModelFileError),
        ({"linear_num_key_heads": 0}, "linear_num_key_heads in", ModelFileError),
        ({"linear_num_value_heads": 2**60}, "linear_num_value_heads in", ModelFileError),
        ({"linear_value_head_dim": 8}, "no room for 4 value heads of 8", ModelFileError),
        ({"linear_key_head_dim": 8}, "no room for 4 value heads of 16", ModelFileError),
        ({"linear_conv_kernel_dim": ...}, "lacks linear_conv_kernel_dim", ModelFileError),
        ({"num_hidden_layers": 2**40, "layer_types": ...}, "num_hidden_layers in", ModelFileError),
        ({"layer_types": ["full_attention"]}, "layer_types in", ModelFileError),
        ({"layer_types": ["sliding_attention"] * 4}, "'sliding_attention' .* known", UnsupportedModelError),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    changes: dict[str, object], told: str, kind: type[MillstreamError], folder: Path
) -> None:
    write_checkpoint(folder, tiny("qwen35", **ENDS))
    change(folder / "config.json", **changes)
    with pytest.raises(kind, match=told):
        open_index(folder)


def test_a_part_of_each_head_is_refused_of_families_that_turn_it_whole(folder: Path) -> None:
    write_checkpoint(folder, tiny("llama", **ENDS))
    change(
        folder / "config.json",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    )
    with pytest.raises(UnsupportedModelError, match="turns only a part"):
        open_index(folder)


def test_a_chat_of_two_turns_reads_its_history_once_and_answers_as_afresh(folder: Path) -> None:
    tokenizer = byte_level("qwen35")
    model = tiny("qwen35", vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=1024, **ENDS)
    write_checkpoint(folder, model, tokenizer=tokenizer)
    settings = Settings(temperature=0, max_tokens=12)
    first = [Message("user", "Once upon a time there was a little mill by the river. " * 6)]

    def answer(engine: Engine, messages: list[Message]) -> tuple[str, int]:
        events = list(engine.chat(messages, settings))
        assert isinstance(events[-1], Finished)
        said = "".join(event.text for event in events if isinstance(event, Text))
        return said, events[-1].usage.cached_tokens

    with Engine.load(folder) as kept:
        said, _ = answer(kept, first)
        held = kept.memory.kv
        for reply in (said, "Something else."):
            second = [*first, Message("assistant", reply), Message("user", "And then?")]
            again, cached = answer(kept, second)
            with Engine.load(folder) as fresh:
                assert (again, 0) == answer(fresh, second)
            assert cached > 50
        assert kept.memory.kv == held


def test_an_index_is_the_same_whoever_opens_it(published: tuple[Path, np.ndarray]) -> None:
    folder, _ = published
    first, second = open_index(folder), open_index(folder / "model.safetensors")
    assert isinstance(first, TensorIndex) and first == second
