"""DeepSeek-V2 and V3 against Transformers, in float32 over the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import models
from engine.decode.cache import KVCache
from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf import read
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.models.deepseek import YARN, tiny_deepseek, write_deepseek
from tests.engine.models.judge import ENCODINGS, TOKENS, check, transformers_logits
from tests.tiny import load_model

DENSE = {"num_hidden_layers": 2, "first_k_dense_replace": 2}
SHAPES: dict[str, tuple[int, dict[str, object]]] = {
    "V2": (2, {}),
    "V2-Lite": (2, {"q_lora_rank": None, "first_k_dense_replace": 0, "num_experts_per_tok": 2}),
    "V2, best groups": (
        2,
        {"n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0},
    ),
    "V2, stretched": (2, {"rope_parameters": YARN}),
    "V2, dense": (2, DENSE),
    "V3": (3, {}),
    "V3, stretched": (3, {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "factor": 40.0}}),
    "V3, stretched without a log multiplier": (
        3,
        {"rope_parameters": {k: v for k, v in YARN.items() if "mscale" not in k}},
    ),
    "V3, queries straight": (3, {"q_lora_rank": None, "n_shared_experts": 1}),
    "V3, weights as they are": (3, {"norm_topk_prob": False, "n_group": 1, "topk_group": 1}),
    "V3, dense": (3, DENSE),
    "V3, many heads": (
        3,
        DENSE | {"num_attention_heads": 36, "num_key_value_heads": 36, "hidden_size": 36, "qk_rope_head_dim": 8},
    ),
    "V3, values wider than keys": (3, DENSE | {"v_head_dim": 64, "kv_lora_rank": 96}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_agrees_with_transformers(shape: str, device: str, tmp_path: Path) -> None:
    version, changes = SHAPES[shape]
    model = tiny_deepseek(version, **changes)
    packs = device in CONTRACT and model.config.hidden_size % 32 == 0
    write_deepseek(tmp_path / "tiny.gguf", model, "Q8_0" if packs else "F32")
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_agrees_with_transformers(encoding: str, device: str, tmp_path: Path) -> None:
    model = tiny_deepseek(3, **DENSE, v_head_dim=32)
    write_deepseek(tmp_path / "tiny.gguf", model, encoding)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f16")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("encoding", ["F32", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("version", [2, 3])
def test_older_files_with_keys_and_values_in_one_matrix_agree_too(
    version: int, encoding: str, device: str, tmp_path: Path
) -> None:
    model = tiny_deepseek(version, **DENSE, rope_parameters=YARN, v_head_dim=40, num_attention_heads=4)
    write_deepseek(tmp_path / "tiny.gguf", model, encoding, apart=False)
    check(tmp_path / "tiny.gguf", transformers_logits(model), device, "f32")


def test_the_log_multiplier_sharpens_attention(tmp_path: Path) -> None:
    model = tiny_deepseek(2, **DENSE, rope_parameters=YARN)
    truth = transformers_logits(model)
    for layer in model.model.layers:
        layer.self_attn.scaling = (32 + 16) ** -0.5
    assert np.abs(transformers_logits(model) - truth).max() > 0.05 * np.abs(truth).max()


def test_a_fingerprint_is_that_of_the_plain_twin_whatever_the_chunk(tmp_path: Path) -> None:
    write_deepseek(tmp_path / "tiny.gguf", tiny_deepseek(3), "Q8_0")

    def taken(ops: Ops, chunk: int) -> str:
        with closing(ops):
            model = load_model(tmp_path / "tiny.gguf", ops)
            with closing(KVCache(ops, model.caches, 64, "f16", Meter())) as cache:
                return fingerprint(Forward(model, ops, cache), TOKENS[:20], 6, chunk=chunk).sha256

    assert (
        len(
            {taken(NativeOps(threads), chunk) for threads, chunk in ((1, 64), (2, 7), (2, 1))} | {taken(PlainOps(), 20)}
        )
        == 1
    )


@pytest.mark.parametrize("apart", [True, False])
def test_a_recorded_step_gives_the_bits_of_the_pass(apart: bool, tmp_path: Path) -> None:
    write_deepseek(tmp_path / "tiny.gguf", tiny_deepseek(3), "Q8_0", apart=apart)
    with closing(NativeOps(2)) as ops:
        model = load_model(tmp_path / "tiny.gguf", ops)
        plain, own = ([ops.cache(spec, 64, "f16") for spec in model.caches] for _ in range(2))
        recorded = ops.recorded(lambda tokens, start: model.hidden(ops, tokens, start, own))
        for position in range(20):
            tokens = [(7 * position) % 96]
            direct = ops.host(model.hidden(ops, tokens, position, plain)).copy()
            assert np.array_equal(ops.host(recorded(tokens, position)).view(np.uint32), direct.view(np.uint32))


def test_a_layer_keeps_its_latents_alone(tmp_path: Path) -> None:
    write_deepseek(tmp_path / "tiny.gguf", tiny_deepseek(3))
    model = load_model(tmp_path / "tiny.gguf", PlainOps())
    assert {(spec.n_kv_heads, spec.key_dim, spec.value_dim, spec.latent) for spec in model.caches} == {
        (1, 48, 32, True)
    }


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> TensorIndex:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_deepseek(path, tiny_deepseek(3, num_hidden_layers=2))
    return read(path)


def build(index: TensorIndex, changes: Mapping[str, object]) -> Model:
    """The model of a file with other metadata; `None` takes a key away."""
    changed = dict(index.metadata) | {f"deepseek2.{key}": value for key, value in changes.items()}
    index = replace(index, metadata={key: value for key, value in changed.items() if value is not None})
    with closing(WeightStore(index, PlainOps(), Meter())) as store:
        model = models.build(index.metadata, store, context=8)
        store.require_all_used()
    return model


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.kv_lora_rank", 0),
        ("attention.kv_lora_rank", 2**40),
        ("attention.kv_lora_rank", "32"),
        ("attention.key_length_mla", 16),
        ("attention.key_length_mla", -1),
        ("attention.value_length_mla", 0),
        ("attention.q_lora_rank", -1),
        ("rope.scaling.yarn_log_multiplier", float("nan")),
        ("leading_dense_block_count", -1),
    ],
)
def test_a_number_that_cannot_be_true_is_named(index: TensorIndex, key: str, value: object) -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    with pytest.raises(ModelFileError, match=rf"deepseek2\.{key}") as caught:
        build(index, yarn | {key: value})
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"attention.kv_lora_rank": 16}, "blk.0.attn_k_b.weight"),
        ({"attention.key_length_mla": 40}, "blk.0.attn_k_b.weight"),
        ({"attention.value_length_mla": 8}, "blk.0.attn_v_b.weight"),
        ({"attention.q_lora_rank": 16}, "blk.0.attn_q_a.weight"),
        ({"attention.q_lora_rank": None}, "blk.0.attn_q.weight"),
        ({"attention.head_count": 2}, "blk.0.attn_k_b.weight"),
        ({"leading_dense_block_count": 0}, "blk.0.ffn_"),
        ({"expert_shared_count": 0}, "blk.1.ffn_down_shexp.weight"),
    ],
)
def test_a_tensor_that_the_metadata_contradicts_is_named(
    index: TensorIndex, changes: dict[str, object], tensor: str
) -> None:
    with pytest.raises(ModelFileError, match=tensor):
        build(index, changes)


@pytest.mark.parametrize("key", ["nextn_predict_layers", "attention.temperature_scale"])
def test_what_other_models_of_the_name_have_is_refused(index: TensorIndex, key: str) -> None:
    build(index, {key: 0})
    with pytest.raises(UnsupportedModelError, match=rf"deepseek2\.{key}"):
        build(index, {key: 1})


def test_every_tensor_must_be_there(index: TensorIndex) -> None:
    for missing in index.tensors.keys() - {"output.weight"}:
        less = replace(index, tensors={name: info for name, info in index.tensors.items() if name != missing})
        if missing.endswith("exp_probs_b.bias"):  # V2 has none
            build(less, {})
            continue
        with pytest.raises(ModelFileError, match=f"no tensor {missing},"):
            build(less, {})
