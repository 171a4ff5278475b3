"""What a file may claim about a model, and how a claim that cannot be true is refused."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.oracle import CLASSES
from engine import models
from engine.errors import MillstreamError, ModelFileError, SettingsError, UnsupportedModelError
from engine.formats.gguf import read
from engine.formats.index import TensorIndex, TensorInfo
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.config import Config
from engine.models.decoder import Decoder
from engine.models.gemma4 import Gemma4
from engine.models.metadata import Metadata
from engine.models.rotary import Turn, inverse_frequencies, table_bytes
from engine.models.scaling import Scaling
from tests.tiny import load_model, tiny, write_gguf

ARCHITECTURES = sorted(models.ARCHITECTURES)

LEAST = {
    "block_count": 2,
    "context_length": 64,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "vocab_size": 96,
}
"""The keys that llama.cpp requires of every architecture here, without the architecture's name before them."""

DAMAGED = [
    ("block_count", 0),
    ("block_count", -1),
    ("block_count", 2**40),
    ("block_count", 2.0),
    ("block_count", True),
    ("block_count", "2"),
    ("context_length", 0),
    ("context_length", 2**63),
    ("embedding_length", 0),
    ("embedding_length", 2**62),
    ("embedding_length", 65),
    ("feed_forward_length", -96),
    ("attention.head_count", 0),
    ("attention.head_count", 3),
    ("attention.head_count", 128),
    ("attention.head_count", 2**32 - 1),
    ("attention.head_count_kv", 0),
    ("attention.head_count_kv", 3),
    ("attention.head_count_kv", 8),
    ("attention.key_length", 0),
    ("attention.key_length", 2**31),
    ("attention.value_length", -1),
    ("rope.dimension_count", 0),
    ("rope.dimension_count", 7),
    ("rope.dimension_count", 32),
    ("rope.freq_base", 0.0),
    ("rope.freq_base", -10000.0),
    ("rope.freq_base", math.nan),
    ("rope.freq_base", math.inf),
    ("rope.freq_base", [10000.0]),
    ("rope.scaling.factor", 0.0),
    ("rope.scaling.factor", math.nan),
    ("rope.scaling.type", 1),
    ("rope.scaling.attn_factor", math.nan),
    ("rope.scaling.attn_factor", 0.0),
    ("rope.scaling.original_context_length", 0),
    ("rope.scaling.yarn_beta_fast", 0.0),
    ("rope.scaling.yarn_beta_slow", "1"),
    ("rope.freq_base", 1.0),
    ("pooling_type", -1),
    ("pooling_type", "mean"),
    ("attention.causal", 0),
    ("attention.layer_norm_rms_epsilon", math.nan),
    ("attention.layer_norm_rms_epsilon", 0.0),
    ("attention.layer_norm_rms_epsilon", -1e-5),
    ("attention.layer_norm_rms_epsilon", 1e30),
    ("vocab_size", 0),
    ("vocab_size", 2**40),
    ("expert_count", -1),
    ("tokenizer.ggml.tokens", []),
    ("tokenizer.ggml.tokens", "abc"),
]

UNSUPPORTED = [
    ("expert_count", 8, "mixture of experts"),
    ("rope.scaling.type", "dynamic", "known: none, linear, yarn, longrope"),
    ("pooling_type", 3, "embeddings"),
    ("attention.causal", False, "embeddings"),
    ("attention.head_count_kv", [1, 2], "layer to layer"),
    ("feed_forward_length", [96, 64], "layer to layer"),
]


def named(architecture: str, changes: Mapping[str, object]) -> dict[str, object]:
    """The changes under the keys that a file of this architecture has."""
    return {key if key.startswith("tokenizer.") else f"{architecture}.{key}": value for key, value in changes.items()}


def config(changes: Mapping[str, object], architecture: str = "qwen3") -> Config:
    return Config.read(Metadata(named(architecture, LEAST | dict(changes))), architecture)


@pytest.fixture(scope="module", params=sorted(CLASSES.keys() - {"qwen35moe"}))
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TensorIndex:
    """The file of a tiny model of each dense architecture."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_gguf(path, tiny(request.param))
    return read(path)


def build(
    index: TensorIndex,
    changes: Mapping[str, object] | None = None,
    *,
    tensors: Mapping[str, TensorInfo] | None = None,
    context: int = 8,
) -> Decoder | Gemma4:
    """The model of a file whose metadata or tensors are not what they were."""
    changes = named(str(index.metadata["general.architecture"]), changes or {})
    index = replace(index, metadata=dict(index.metadata) | changes, tensors=tensors or index.tensors)
    with closing(WeightStore(index, PlainOps(), Meter())) as store:
        model = models.build(index.metadata, store, context=context)
    assert isinstance(model, Decoder | Gemma4)
    return model


def is_one_clear_sentence(error: Exception) -> bool:
    message = str(error)
    return message.endswith(".") and len(message) < 250 and "\n" not in message


def test_what_a_file_may_leave_out_has_the_defaults_of_llama_cpp() -> None:
    assert config({}) == Config(
        n_layers=2,
        context_length=64,
        hidden_size=64,
        intermediate_size=96,
        n_heads=4,
        n_kv_heads=4,
        key_dim=16,
        value_dim=16,
        rotary_dim=16,
        rope_theta=10000.0,
        scaling=Scaling("linear", 1.0, 1.0, original_context=64, beta_fast=32.0, beta_slow=1.0),
        eps=1e-5,
        vocabulary=96,
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("key", LEAST)
def test_a_missing_key_is_named_as_the_file_would_have_it(key: str, architecture: str) -> None:
    values = named(architecture, {other: value for other, value in LEAST.items() if other != key})
    with pytest.raises(ModelFileError, match=rf"lacks {architecture}\.{key};"):
        Config.read(Metadata(values), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_a_value_that_cannot_be_true_is_named_in_one_clear_sentence(key: str, value: object, architecture: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        config({key: value}, architecture)
    assert next(iter(named(architecture, {key: value}))) in str(caught.value)
    assert is_one_clear_sentence(caught.value)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("key", "value", "word"), UNSUPPORTED)
def test_a_variant_that_is_not_known_is_refused_by_name(key: str, value: object, word: str, architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        config({key: value}, architecture)
    assert f"{architecture}.{key}" in str(caught.value)
    assert is_one_clear_sentence(caught.value)


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("phi3", "attention.sliding_window", -1),
        ("phi3", "attention.sliding_window", 2**40),
        ("gemma2", "attention.sliding_window", 0),
        ("gemma2", "attn_logit_softcapping", 0.0),
        ("gemma2", "final_logit_softcapping", math.nan),
        ("gemma3", "attention.sliding_window", "512"),
        ("gemma3", "final_logit_softcapping", -30.0),
        ("gemma3", "rope.freq_base_swa", 0.0),
        ("gemma4", "attention.head_count_kv", [2, 3]),
        ("gemma4", "attention.head_count_kv", [2, 0]),
        ("gemma4", "attention.head_count_kv", [2, True]),
        ("gemma4", "attention.key_length_swa", 0),
        ("gemma4", "attention.value_length_swa", 8),
        ("gemma4", "attention.shared_kv_layers", 1),
        ("gemma4", "attention.shared_kv_layers", 3),
        ("gemma4", "attention.sliding_window", 0),
        ("gemma4", "attention.sliding_window_pattern", 2),
        ("gemma4", "attention.sliding_window_pattern", [True, 1]),
        ("gemma4", "rope.dimension_count_swa", 7),
        ("gemma4", "embedding_length_per_layer_input", -1),
        ("gemma4", "feed_forward_length", [96.0, 96]),
        ("qwen35", "ssm.conv_kernel", 17),
        ("qwen35", "ssm.state_size", 0),
        ("qwen35", "ssm.inner_size", 66),
        ("qwen35", "ssm.time_step_rank", 3),
        ("qwen35", "ssm.group_count", 2**13),
        ("qwen35", "full_attention_interval", 0),
        ("qwen35", "attention.recurrent_layers", [True, True, False]),
        ("qwen35", "nextn_predict_layers", 4),
    ],
)
def test_a_number_of_one_family_that_cannot_be_true_is_named(
    architecture: str, key: str, value: object, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny(architecture))
    with pytest.raises(ModelFileError, match=re.escape(f"{architecture}.{key} ")) as caught:
        build(read(tmp_path / "tiny.gguf"), {key: value})
    assert is_one_clear_sentence(caught.value)


def test_random_metadata_gives_a_config_or_a_typed_error() -> None:
    draws = np.random.default_rng(9)
    values = [0, 1, 2, 3, -1, 2**31, 2**64, 0.5, math.nan, -math.inf, "", "x" * 10**5, True, None, [], [1, 2], [[]]]
    keys = [*LEAST, "attention.head_count_kv", "attention.key_length", "rope.scaling.type", "rope.scaling.factor"]
    refused = 0
    for _ in range(2000):
        changes = {keys[draws.integers(len(keys))]: values[draws.integers(len(values))] for _ in range(2)}
        try:
            read_back = config(changes)
            assert read_back.n_heads * read_back.key_dim <= 2**24
            assert np.isfinite(read_back.scaling.frequencies(read_back.rope_theta, read_back.rotary_dim)).all()
        except MillstreamError as error:
            refused += 1
            assert is_one_clear_sentence(error)
    assert refused > 1000


def test_heads_need_not_split_the_width_where_the_file_gives_their_own() -> None:
    read_back = config({"attention.head_count": 3, "attention.key_length": 32, "attention.value_length": 16})
    assert (read_back.key_dim, read_back.value_dim, read_back.rotary_dim) == (32, 16, 32)


def test_linear_scaling_is_the_default_kind_and_an_older_key_gives_its_factor() -> None:
    assert config({"rope.scaling.factor": 4.0}).scaling.factor == 4.0
    assert config({"rope.scale_linear": 2.0}).scaling.factor == 2.0
    assert config({"rope.scale_linear": 2.0, "rope.scaling.factor": 4.0}).scaling.factor == 4.0
    assert config({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}).scaling.factor == 1.0


def test_yarn_lengthens_queries_and_keys_unless_the_file_says_by_how_much() -> None:
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    assert config(yarn).scaling.amplitude == 0.1 * math.log(4) + 1
    assert config(yarn | {"rope.scaling.yarn_attn_factor": 0.5}).scaling.amplitude == 0.5
    own = {"rope.scaling.yarn_attn_factor": 0.5, "rope.scaling.attn_factor": 3.0}
    assert config(yarn | own).scaling.amplitude == 1.5
    assert config(own).scaling.amplitude == 3.0


@pytest.mark.parametrize(("key", "value"), [("yarn_ext_factor", 0.5), ("yarn_log_multiplier", 0.1)])
def test_a_variant_of_yarn_that_is_not_known_is_refused_by_name(key: str, value: float) -> None:
    key = f"rope.scaling.{key}"
    with pytest.raises(UnsupportedModelError, match=f"qwen3.{key} is {value}") as caught:
        config({"rope.scaling.type": "yarn", key: value})
    assert is_one_clear_sentence(caught.value)


def test_the_token_list_says_how_many_rows_the_embedding_has() -> None:
    assert config({"tokenizer.ggml.tokens": ["a", "b", "c"]}).vocabulary == 3


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=rf"'mamba'.* known: {', '.join(ARCHITECTURES)}\."):
        models.find({"general.architecture": "mamba"})


def test_metadata_without_an_architecture_is_refused() -> None:
    with pytest.raises(ModelFileError, match=r"general\.architecture"):
        models.find({})


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"block_count": 3}, "blk.2.attn_norm.weight"),
        ({"embedding_length": 128}, "token_embd.weight"),
        ({"feed_forward_length": 64}, "blk.0.ffn_gate.weight"),
        ({"attention.head_count": 2}, "blk.0.attn_q.weight"),
        ({"attention.head_count_kv": 1}, "blk.0.attn_k.weight"),
        ({"attention.value_length": 8}, "blk.0.attn_v.weight"),
        ({"vocab_size": 97}, "token_embd.weight"),
    ],
)
def test_a_tensor_that_the_metadata_contradicts_is_named(
    index: TensorIndex, changes: dict[str, object], tensor: str
) -> None:
    if index.metadata["general.architecture"] == "gemma4":  # lists of its layers, and one width of a head, tell first
        tensor = {"blk.2.attn_norm.weight": "sliding_window_pattern", "blk.0.attn_v.weight": "value_length"}.get(
            tensor, tensor
        )
    elif "blk.0.ssm_a" in index.tensors:  # the last of four layers is the one that attends
        tensor = tensor.replace("blk.2", "blk.4").replace("blk.0.attn", "blk.3.attn")
        changes = changes | {"block_count": 5} if "block_count" in changes else changes
    elif tensor not in index.tensors and tensor != "blk.2.attn_norm.weight":
        tensor = re.sub("attn_[qkv]", "attn_qkv", tensor).replace("ffn_gate", "ffn_up")  # they are fused
    with pytest.raises(ModelFileError, match=tensor):
        build(index, changes)


def test_every_tensor_but_the_head_must_be_there(index: TensorIndex) -> None:
    optional = {"output.weight"}
    if index.metadata["general.architecture"] == "gemma4":
        optional.add("blk.1.attn_v.weight")  # where values are keys
    for missing in index.tensors.keys() - optional:
        with pytest.raises(ModelFileError, match=f"no tensor {missing},"):
            build(index, tensors={name: info for name, info in index.tensors.items() if name != missing})


def test_a_tensor_of_another_shape_is_named(index: TensorIndex) -> None:
    for name, info in index.tensors.items():
        other = replace(info, shape=(*info.shape[:-1], info.shape[-1] // 2))
        with pytest.raises(ModelFileError, match=f"{name} .* has the shape"):
            build(index, tensors=dict(index.tensors) | {name: other})


@pytest.mark.parametrize("tensor", ["blk.1.attn_qkv.weight", "blk.0.ffn_gate.bias"])
def test_a_tensor_that_would_change_the_answer_is_refused_rather_than_left_out(index: TensorIndex, tensor: str) -> None:
    if "blk.0.ssm_a" in index.tensors:
        tensor = tensor.replace("blk.1.attn_qkv", "blk.3.attn_qkv")
    elif "blk.0.attn_q.weight" not in index.tensors:
        tensor = tensor.replace("attn_qkv.weight", "attn_qkv.bias")
    info = next(iter(index.tensors.values()))
    with pytest.raises(UnsupportedModelError, match=tensor) as caught:
        build(index, tensors=dict(index.tensors) | {tensor: info})
    assert is_one_clear_sentence(caught.value)


def test_a_long_context_claimed_by_the_file_costs_only_what_is_asked_for(index: TensorIndex) -> None:
    model = build(index, {"context_length": 2**31}, context=8)
    assert model.context_length == 8
    tables = list(model.tables.values())
    assert tables and all(table.cos.shape == table.sin.shape == (8, table.cos.shape[1]) for table in tables)


def test_a_table_is_made_and_made_anew_without_a_second_one_beside_it() -> None:
    turn, places = Turn(inverse_frequencies(1e4, 128), "halves"), np.arange(40_000)
    tracemalloc.start()
    table = turn.table(len(places))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    again = turn.at(places + 5, table)
    _, later = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held >= table_bytes([table]) == 40_000 * 128 * 4
    assert max(peak, later) < 1.2 * held
    assert again is table and table.cos.tobytes() == turn.at(places + 5).cos.tobytes()


def test_the_context_is_at_most_what_the_file_claims(index: TensorIndex) -> None:
    assert build(index, context=10**9).context_length == 64


def test_a_context_of_nothing_is_refused(index: TensorIndex) -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        build(index, context=0)


SCALINGS = {
    "rope_freqs.weight": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "rope_factors_long.weight": {
        "rope_type": "longrope",
        "long_factor": [2.0] * 8,
        "short_factor": [1.0] * 8,
        "original_max_position_embeddings": 32,
    },
}
"""Scalings by the tensor that has their divisors."""


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("tensor", SCALINGS)
def test_a_rotary_divisor_that_is_no_positive_number_is_refused(tensor: str, value: float, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tiny("llama", rope_parameters={"rope_theta": 10000.0} | SCALINGS[tensor]))
    with open(path, "r+b") as file:
        file.seek(read(path).tensors[tensor].offset)
        file.write(np.float32(value).tobytes())
    with pytest.raises(ModelFileError, match=tensor) as caught:
        load_model(path, PlainOps())
    assert is_one_clear_sentence(caught.value)


def test_longrope_without_its_divisors_is_refused(index: TensorIndex) -> None:
    key = "rope.scaling.type"
    tensors = {name: info for name, info in index.tensors.items() if name != "rope_freqs.weight"}
    with pytest.raises(ModelFileError, match=r"no tensor rope_f(actors_short|reqs)\.weight"):
        build(index, {key: "longrope"}, tensors=tensors)


def test_longrope_goes_by_the_context_that_is_kept(tmp_path: Path) -> None:
    write_gguf(
        tmp_path / "tiny.gguf",
        tiny("llama", rope_parameters={"rope_theta": 10000.0} | SCALINGS["rope_factors_long.weight"]),
    )
    index = read(tmp_path / "tiny.gguf")
    amplitude = float(np.float32(math.sqrt(1 + math.log(2) / math.log(32))))
    for context, divisor in ((8, 1.0), (32, 1.0), (33, 2.0), (10**6, 2.0)):
        table = next(iter(build(index, context=context).tables.values()))
        assert table is not None
        assert table.cos[3, 0] == np.float32(amplitude * math.cos(3 / divisor)), context
