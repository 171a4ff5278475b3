"""Rough sizes of files and of what they take, against true ones: within a tenth."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedModel

from engine.decode.states import SNAPSHOTS
from engine.errors import SettingsError
from engine.formats import open_index
from engine.memory.needs import Needs
from engine.types import Budgets
from registry.catalogue import Cache, Shape, catalogue
from registry.rough import CHUNK, CONTEXT, MIXES, STATES, of_shape, rough, tower_bits
from tests.tiny import tiny, write_gguf

ENTRIES = {entry.id: entry for entry in catalogue()}

PUBLISHED = [
    ("smollm2-135m", "Q4_1", 98_362_432),
    ("smollm3-3b", "Q4_K_M", 1_915_305_312),
    ("smolvlm2-2.2b", "Q4_K_M", 1_112_602_656),
    ("qwen3-4b", "Q4_K_M", 2_497_281_120),
    ("qwen3-30b-a3b", "Q4_K_M", 18_556_686_752),
    ("qwen3.5-0.8b", "Q8_0", 811_843_840),
    ("qwen3.5-9b", "Q8_0", 9_527_502_048),
    ("qwen3.5-122b-a10b", "UD-Q4_K_XL", 68_357_580_224),
    ("qwen3.5-397b-a17b", "UD-Q4_K_XL", 219_216_328_992),
    ("gemma-3-4b", "Q4_0", 2_526_080_992),
    ("gemma-3-12b", "Q4_0", 7_131_017_792),
    ("gemma-4-e2b", "Q4_K_M", 3_106_736_256),
    ("gpt-oss-20b", "MXFP4", 12_109_566_560),
    ("gpt-oss-120b", "MXFP4", 63_387_346_464),
    ("llama-3.2-3b", "Q4_K_M", 2_019_377_696),
    ("phi-4-mini", "Q4_K_M", 2_491_874_272),
]
"""Sizes of files as the Hub showed them in 2026; true of that day, and good enough to judge an estimate by."""


@pytest.mark.parametrize(("name", "quantisation", "nbytes"), PUBLISHED)
def test_a_download_is_known_within_a_tenth_before_any_request(name: str, quantisation: str, nbytes: int) -> None:
    assert rough(ENTRIES[name], quantisation).file == pytest.approx(nbytes, rel=0.1)


def test_the_starter_agrees_with_its_file_and_with_what_the_engine_needs(starter: Path) -> None:
    told = rough(ENTRIES["smollm2-135m"], "Q4_1")
    needs = Needs(open_index(starter), Budgets(), None, threads=4)
    assert told.file == pytest.approx(starter.stat().st_size, rel=0.1)
    assert told.weights == pytest.approx(needs.weights, rel=0.02)
    assert told.passed == pytest.approx(sum(needs.step.passed.values()), rel=0.02)
    assert told.position * CONTEXT == needs.kv(CONTEXT)
    assert told.weights + told.beside(CONTEXT, sees=False) == pytest.approx(needs.resident(CONTEXT, CHUNK), rel=0.1)


SIZES: dict[str, object] = {
    "vocab_size": 8192,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT,
}
FAMILIES: dict[str, dict[str, object]] = {
    "qwen3": {"intermediate_size": 1536},
    "qwen35moe": {
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 256,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    },
}


def shape_of(model: PreTrainedModel, caches: tuple[Cache, ...], state: int = 0) -> Shape:
    counts = {name: values.numel() for name, values in model.named_parameters()}
    total, experts = sum(counts.values()), sum(n for name, n in counts.items() if ".experts." in name)
    embedding = counts["model.embed_tokens.weight"]
    chosen = experts * 4 // 32
    return Shape(total, total - embedding - experts + chosen, 4, 512, 8192, False, caches, experts, state=state)


@pytest.mark.parametrize("quantisation", ["Q8_0", "F16"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_files_that_were_made_agree_with_their_shapes(tmp_path: Path, architecture: str, quantisation: str) -> None:
    model = tiny(architecture, **SIZES, **FAMILIES[architecture])
    if architecture == "qwen3":
        shape = shape_of(model, (Cache(4, 2, 64, 64),))
    else:  # three layers of four value heads, and convolutions over 2 · 2 · 64 + 4 · 64 channels
        shape = shape_of(model, (Cache(1, 2, 64, 64),), state=3 * (4 * 64 * 64 + 3 * 512))
    path = tmp_path / "made.gguf"
    write_gguf(path, model, quantisation)
    told = of_shape(shape, quantisation)
    needs = Needs(open_index(path), Budgets(), None, threads=4)
    assert told.file == pytest.approx(path.stat().st_size, rel=0.1)
    assert told.weights == pytest.approx(needs.weights, rel=0.05)
    assert told.passed == pytest.approx(sum(needs.step.passed.values()), rel=0.1)
    assert told.position * CONTEXT + told.state == needs.kv(CONTEXT)
    assert told.weights + told.beside(CONTEXT, sees=False) == pytest.approx(needs.resident(CONTEXT, CHUNK), rel=0.1)


def test_recurrent_layers_keep_as_many_states_as_the_engine_does() -> None:
    assert STATES == 1 + SNAPSHOTS
    # 48 layers of Qwen3.6 27B: 48 heads of 128 × 128, and three inputs of a convolution over 10 240 channels.
    assert rough(ENTRIES["qwen3.6-27b"], "Q4_K_M").state == 3 * 4 * 48 * (48 * 128 * 128 + 3 * 10_240)


def test_a_latent_stores_keys_alone() -> None:
    # 61 layers of 512 + 64 numbers of F16 (DeepSeek-V3 Technical Report, section 2.1.1).
    assert rough(ENTRIES["deepseek-v3.1"], "Q4_K_M").position == 61 * 576 * 2


def test_experts_that_are_not_chosen_are_not_passed() -> None:
    told = rough(ENTRIES["qwen3-30b-a3b"], "Q8_0")
    assert told.active_experts == pytest.approx(told.experts * 8 / 128, rel=1e-3)
    assert told.passed < told.weights / 8


def test_rows_that_are_no_whole_number_of_blocks_take_the_encodings_that_llama_cpp_falls_back_to() -> None:
    shape = ENTRIES["smollm2-135m"].shape
    assert shape.hidden % 256
    assert of_shape(shape, "Q6_K").weights == of_shape(shape, "Q8_0").weights


def test_a_tower_counts_as_its_file_is_packed() -> None:
    assert tower_bits("mmproj-F16.gguf") == 16 and tower_bits("mmproj-x-Q8_0.gguf") == 8.5
    told = rough(ENTRIES["qwen3-vl-4b"], "Q4_K_M")
    assert told.tower == pytest.approx(836_180_640, rel=0.1)
    assert told.beside(0, sees=True) - told.beside(0, sees=False) == told.tower


def test_an_unknown_quantisation_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SettingsError, match="Nothing is known of the quantisation Q9_Z") as caught:
        rough(ENTRIES["qwen3-4b"], "Q9_Z")
    assert all(name in str(caught.value) for name in MIXES)
