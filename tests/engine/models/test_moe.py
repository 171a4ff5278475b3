"""Mixtures of experts against Transformers, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import models
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats import gguf
from engine.kernels.native import NativeOps
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.metadata import Metadata
from engine.models.moe import Mixture
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.judge import check, transformers_logits
from tests.engine.models.mixtures import MIXTURES, YARN, tiny_mixture, write_mixture
from tests.tiny import load_model

SMALL = {"hidden_size": 32, "intermediate_size": 32}
SHAPES: dict[str, tuple[str, dict[str, object]]] = {
    "qwen3moe": ("qwen3moe", {}),
    "qwen3moe, one expert each": ("qwen3moe", {"num_experts_per_tok": 1}),
    "qwen3moe, all experts": ("qwen3moe", {"num_experts_per_tok": 8}),
    "qwen3moe, many experts": ("qwen3moe", {"num_experts": 32, "num_experts_per_tok": 5}),
    "qwen3moe, weights as they are": ("qwen3moe", {"norm_topk_prob": False}),
    "qwen3moe, tied": ("qwen3moe", {"tie_word_embeddings": True}),
    "qwen3moe, wide experts": ("qwen3moe", {"moe_intermediate_size": 224}),
    "qwen3vlmoe": ("qwen3vlmoe", {}),
    "gpt-oss": ("gpt-oss", {}),
    "gpt-oss, four layers": ("gpt-oss", {"num_hidden_layers": 4, "num_experts_per_tok": 4}),
    "gpt-oss, wide experts": ("gpt-oss", {"intermediate_size": 160}),
    "gpt-oss, stretched further": ("gpt-oss", {"rope_parameters": YARN | {"factor": 32.0, "rope_theta": 10.0}}),
    "gpt-oss, a window as long as the text": ("gpt-oss", {"sliding_window": 40}),
    "mixtral": ("llama", {}),
    "mixtral, three experts each": ("llama", {"num_experts_per_tok": 3, "num_key_value_heads": 1}),
}
ENCODINGS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "MXFP4")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    architecture, changes = SHAPES[shape]
    model = tiny_mixture(architecture, **changes)
    write_mixture(tmp_path / "tiny.gguf", architecture, model, "Q8_0" if device in CONTRACT else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss"])
def test_every_encoding_agrees_with_transformers(architecture: str, encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny_mixture(architecture)
    write_mixture(tmp_path / "tiny.gguf", architecture, model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize("device", DEVICES)
def test_fused_gates_give_what_separate_ones_give(device: str, tmp_path: Path) -> None:
    model = tiny_mixture("qwen3moe")
    write_mixture(tmp_path / "tiny.gguf", "qwen3moe", model, "Q8_0", fused=True)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


def test_sinks_take_their_share(tmp_path: Path) -> None:
    model = tiny_mixture("gpt-oss")
    truth = transformers_logits(model)
    for layer in model.model.layers:
        layer.self_attn.sinks.data.fill_(-1e4)
    assert np.abs(transformers_logits(model) - truth).max() > 0.05 * np.abs(truth).max()


@pytest.mark.parametrize("architecture", ["qwen3moe", "gpt-oss"])
def test_a_recorded_step_gives_the_bits_of_the_pass(architecture: str, tmp_path: Path) -> None:
    write_mixture(tmp_path / "tiny.gguf", architecture, tiny_mixture(architecture), "Q8_0")
    with closing(NativeOps(2)) as ops:
        model = load_model(tmp_path / "tiny.gguf", ops)
        plain, own = ([ops.cache(spec, 64, "f16") for spec in model.caches] for _ in range(2))
        recorded = ops.recorded(lambda tokens, start: model.hidden(ops, tokens, start, own))
        for position in range(20):
            tokens = [(7 * position) % 96]
            direct = ops.host(model.hidden(ops, tokens, position, plain)).copy()
            assert np.array_equal(ops.host(recorded(tokens, position)).view(np.uint32), direct.view(np.uint32))


KEYS = {"m.expert_count": 8, "m.expert_used_count": 2, "m.expert_feed_forward_length": 32}


def read(**changes: object) -> Mixture:
    return Mixture.read(Metadata(KEYS | {f"m.{key}": value for key, value in changes.items()}).under("m"))


def test_numbers_of_a_mixture_are_read() -> None:
    assert read().router.normalise and read().shared_width == read().dense == 0
    deepseek = read(
        expert_gating_func=2,
        expert_group_count=4,
        expert_group_used_count=2,
        expert_weights_scale=2.5,
        expert_weights_norm=False,
        expert_shared_count=2,
        leading_dense_block_count=3,
    )
    router = deepseek.router
    assert (router.scores, router.groups, router.groups_kept, router.scale) == ("sigmoid", 4, 2, 2.5)
    assert not router.normalise
    assert (deepseek.shared_width, deepseek.dense) == (64, 3)
    assert read(expert_gating_func=3, expert_weights_norm=False).router.normalise


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"expert_used_count": 9}, ModelFileError),
        ({"expert_used_count": 0}, ModelFileError),
        ({"expert_count": 1 << 40}, ModelFileError),
        ({"expert_group_count": 3}, ModelFileError),
        ({"expert_group_count": 8, "expert_group_used_count": 1}, ModelFileError),
        ({"expert_weights_scale": float("nan")}, ModelFileError),
        ({"expert_gating_func": 4}, UnsupportedModelError),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"m\.expert"):
        read(**changes)


@pytest.mark.parametrize("architecture", MIXTURES)
def test_every_tensor_but_the_head_must_be_there(architecture: str, tmp_path: Path) -> None:
    write_mixture(tmp_path / "tiny.gguf", architecture, tiny_mixture(architecture, num_hidden_layers=1))
    index = gguf.read(tmp_path / "tiny.gguf")
    for missing in index.tensors.keys() - {"output.weight"}:
        rest = replace(index, tensors={name: info for name, info in index.tensors.items() if name != missing})
        with (
            closing(WeightStore(rest, PlainOps(), Meter())) as store,
            pytest.raises(ModelFileError, match=f"no tensor {missing},"),
        ):
            models.build(rest.metadata, store, context=8)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    model = tiny_mixture("qwen3moe", num_experts=4)
    model.config.num_experts = model.config.num_local_experts = 5
    write_mixture(tmp_path / "tiny.gguf", "qwen3moe", model)
    with closing(NativeOps(1)) as ops, pytest.raises(ModelFileError, match=r"ffn_gate_exps\.weight .* 4 by 32 by 64"):
        load_model(tmp_path / "tiny.gguf", ops)
