"""What a file may claim about a Llama, and how a claim that cannot be true is refused."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine import models
from engine.errors import ContextError, MillstreamError, ModelFileError, SettingsError, UnsupportedModelError
from engine.formats.gguf import read
from engine.kernels.plain import PlainOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.config import Metadata
from engine.models.llama import Config, Llama
from tests.tiny import load_model, tiny_llama, write_llama

LEAST = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 96,
}
"""The keys that llama.cpp requires of this architecture."""

DAMAGED = [
    ("llama.block_count", 0),
    ("llama.block_count", -1),
    ("llama.block_count", 2**40),
    ("llama.block_count", 2.0),
    ("llama.block_count", True),
    ("llama.block_count", "2"),
    ("llama.context_length", 0),
    ("llama.context_length", 2**63),
    ("llama.embedding_length", 0),
    ("llama.embedding_length", 2**62),
    ("llama.embedding_length", 65),
    ("llama.feed_forward_length", -96),
    ("llama.attention.head_count", 0),
    ("llama.attention.head_count", 3),
    ("llama.attention.head_count", 128),
    ("llama.attention.head_count", 2**32 - 1),
    ("llama.attention.head_count_kv", 0),
    ("llama.attention.head_count_kv", 3),
    ("llama.attention.head_count_kv", 8),
    ("llama.attention.key_length", 0),
    ("llama.attention.key_length", 2**31),
    ("llama.attention.value_length", -1),
    ("llama.rope.dimension_count", 0),
    ("llama.rope.dimension_count", 7),
    ("llama.rope.dimension_count", 32),
    ("llama.rope.freq_base", 0.0),
    ("llama.rope.freq_base", -10000.0),
    ("llama.rope.freq_base", math.nan),
    ("llama.rope.freq_base", math.inf),
    ("llama.rope.freq_base", [10000.0]),
    ("llama.rope.scaling.factor", 0.0),
    ("llama.rope.scaling.factor", math.nan),
    ("llama.rope.scaling.type", 1),
    ("llama.attention.layer_norm_rms_epsilon", math.nan),
    ("llama.attention.layer_norm_rms_epsilon", 0.0),
    ("llama.attention.layer_norm_rms_epsilon", -1e-5),
    ("llama.attention.layer_norm_rms_epsilon", 1e30),
    ("llama.vocab_size", 0),
    ("llama.vocab_size", 2**40),
    ("llama.expert_count", -1),
    ("tokenizer.ggml.tokens", []),
    ("tokenizer.ggml.tokens", "abc"),
]

UNSUPPORTED = [
    ("llama.expert_count", 8, "mixture of experts"),
    ("llama.rope.scaling.type", "yarn", "yarn"),
    ("llama.rope.scaling.type", "longrope", "longrope"),
    ("llama.attention.head_count_kv", [1, 2], "layer to layer"),
    ("llama.feed_forward_length", [96, 64], "layer to layer"),
]


def config(changes: dict[str, object]) -> Config:
    return Config.read(Metadata(LEAST | changes))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_llama(path, tiny_llama())
    return path


def build(path: Path, changes: dict[str, object], context: int = 8) -> Llama:
    """The model of a file whose metadata says something else than it does."""
    index = read(path)
    with closing(WeightStore(index, PlainOps(), Meter())) as store:
        model = models.build(dict(index.metadata) | changes, store, context=context)
    assert isinstance(model, Llama)
    return model


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
        rope_factor=1.0,
        eps=1e-5,
        vocabulary=96,
    )


@pytest.mark.parametrize("key", [key for key in LEAST if key != "general.architecture"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ModelFileError, match=key):
        Config.read(Metadata({other: value for other, value in LEAST.items() if other != key}))


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_a_value_that_cannot_be_true_is_named_in_one_short_message(key: str, value: object) -> None:
    with pytest.raises(ModelFileError) as caught:
        config({key: value})
    message = str(caught.value)
    assert key in message
    assert message.endswith(".") and len(message) < 250 and "\n" not in message


@pytest.mark.parametrize(("key", "value", "word"), UNSUPPORTED)
def test_a_variant_that_is_not_known_is_refused_by_name(key: str, value: object, word: str) -> None:
    with pytest.raises(UnsupportedModelError, match=word):
        config({key: value})


def test_random_metadata_gives_a_config_or_a_typed_error() -> None:
    draws = np.random.default_rng(9)
    values = [0, 1, 2, 3, -1, 2**31, 2**64, 0.5, math.nan, -math.inf, "", "x" * 10**5, True, None, [], [1, 2], [[]]]
    keys = [*LEAST, "llama.attention.head_count_kv", "llama.attention.key_length", "llama.rope.scaling.type"]
    refused = 0
    for _ in range(2000):
        changes = {keys[draws.integers(len(keys))]: values[draws.integers(len(values))] for _ in range(2)}
        try:
            read_back = config(changes)
            assert read_back.n_heads * read_back.key_dim <= 2**24
        except MillstreamError as error:
            refused += 1
            assert len(str(error)) < 250
    assert refused > 1000


def test_heads_need_not_split_the_width_where_the_file_gives_their_own() -> None:
    own = {"llama.attention.key_length": 32, "llama.attention.value_length": 16}
    read_back = config({"llama.attention.head_count": 3} | own)
    assert (read_back.key_dim, read_back.value_dim, read_back.rotary_dim) == (32, 16, 32)


def test_linear_scaling_is_the_default_kind_and_an_older_key_gives_its_factor() -> None:
    assert config({"llama.rope.scaling.factor": 4.0}).rope_factor == 4.0
    assert config({"llama.rope.scale_linear": 2.0}).rope_factor == 2.0
    assert config({"llama.rope.scale_linear": 2.0, "llama.rope.scaling.factor": 4.0}).rope_factor == 4.0
    assert config({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}).rope_factor == 1.0


def test_the_token_list_says_how_many_rows_the_embedding_has() -> None:
    assert config({"tokenizer.ggml.tokens": ["a", "b", "c"]}).vocabulary == 3


def test_an_unknown_architecture_is_refused_with_the_known_ones(tiny: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.* known: llama\."):
        build(tiny, {"general.architecture": "mamba"})


def test_metadata_without_an_architecture_is_refused(tiny: Path) -> None:
    index = read(tiny)
    metadata = {key: value for key, value in index.metadata.items() if key != "general.architecture"}
    store = WeightStore(index, PlainOps(), Meter())
    with closing(store), pytest.raises(ModelFileError, match=r"general\.architecture"):
        models.build(metadata, store, context=8)


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"llama.block_count": 3}, "blk.2.attn_norm.weight"),
        ({"llama.embedding_length": 128, "llama.attention.key_length": 16}, "token_embd.weight"),
        ({"llama.feed_forward_length": 64}, "blk.0.ffn_gate.weight"),
        ({"llama.attention.head_count": 2}, "blk.0.attn_q.weight"),
        ({"llama.vocab_size": 97}, "token_embd.weight"),
    ],
)
def test_a_tensor_that_the_metadata_contradicts_is_named(tiny: Path, changes: dict[str, object], tensor: str) -> None:
    with pytest.raises(ModelFileError, match=tensor):
        build(tiny, changes)


def test_a_long_context_claimed_by_the_file_costs_only_what_is_asked_for(tiny: Path) -> None:
    model = build(tiny, {"llama.context_length": 2**31}, context=8)
    assert model.context_length == 8
    assert model.rotary.cos.shape == model.rotary.sin.shape == (8, 8)


def test_the_context_is_at_most_what_the_file_claims(tiny: Path) -> None:
    assert build(tiny, {}, context=10**9).context_length == 64


def test_a_context_of_nothing_is_refused(tiny: Path) -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        build(tiny, {}, context=0)


def test_tokens_past_the_context_are_refused(tiny: Path) -> None:
    ops = PlainOps()
    model = load_model(tiny, ops, context=4)
    caches = [ops.cache(spec, 4, "f32") for spec in model.caches]
    model.hidden(ops, [1, 2, 3], 0, caches)
    with pytest.raises(ContextError, match="needs 5 positions, but the context holds 4"):
        model.hidden(ops, [4, 5], 3, caches)


def test_a_bias_in_the_feed_forward_is_refused_rather_than_left_out(tmp_path: Path) -> None:
    write_llama(tmp_path / "tiny.gguf", tiny_llama(mlp_bias=True))
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_gate\.bias"):
        load_model(tmp_path / "tiny.gguf", PlainOps())


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_rotary_divisor_that_is_no_positive_number_is_refused(value: float, tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    path = tmp_path / "tiny.gguf"
    write_llama(path, tiny_llama(rope_parameters=scaling))
    with open(path, "r+b") as file:
        file.seek(read(path).tensors["rope_freqs.weight"].offset)
        file.write(np.float32(value).tobytes())
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight"):
        load_model(path, PlainOps())
