"""A model gives one answer under every budget, in blocks of every size, through any number of threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from bench.make_big import Shape, write_big
from engine import BudgetError, Budgets, Engine, Fingerprint, SettingsError
from tests.bytewise import VOCABULARY, bytewise
from tests.engine.formats.checkpoints import byte_level, write_checkpoint
from tests.engine.models.deepseek import tiny_deepseek, write_deepseek
from tests.engine.models.mixtures import tiny_mixture, write_mixture
from tests.tiny import tiny, write_gguf

PROMPT = "The mill by the river"
TOKENS = 4
CONTEXT = 64

DENSE = Shape(layers=3, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=512, tied=True, feed_forward="Q6_K")
MIXTURE = Shape(
    layers=3, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=256, experts=12, experts_used=3, attention="Q4_0"
)
WIDE = {"vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512}
"""Large enough for a matrix to be many blocks."""


def tiny_file(architecture: str, encoding: str, **changes: object) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        write_gguf(path, tiny(architecture, **(WIDE | changes)), encoding, tokenizer=bytewise)
        return path

    return make


def tiny_deepseek_file(path: Path) -> Path:
    write_deepseek(path, tiny_deepseek(3, **WIDE), "Q8_0", tokenizer=bytewise)
    return path


def tiny_mixture_file(path: Path) -> Path:
    write_mixture(path, "gpt-oss", tiny_mixture("gpt-oss", **WIDE), "MXFP4", tokenizer=bytewise)
    return path


def checkpoint(make: Callable[..., torch.nn.Module], architecture: str) -> Callable[[Path], Path]:
    def publish(path: Path) -> Path:
        tokenizer = byte_level("llama-bpe")
        model = make(architecture, **(WIDE | {"vocab_size": tokenizer.get_vocab_size()}))
        folder = path.with_suffix("")
        return write_checkpoint(folder, model, dtype=torch.bfloat16, shard="200KB", tokenizer=tokenizer)

    return publish


MODELS: dict[str, Callable[[Path], Path]] = {
    "dense": lambda path: write_big(path, DENSE, bytewise),
    "mixture": lambda path: write_big(path, MIXTURE, bytewise),
    "mixture of joined gates and biases": tiny_mixture_file,
    "untied head": tiny_file("qwen3", "Q4_1"),
    "table of every layer": tiny_file(
        "gemma4", "Q8_0", tie_word_embeddings=True, vocab_size_per_layer_input=VOCABULARY, num_hidden_layers=2
    ),
    "latent heads and shared experts": tiny_deepseek_file,
    "recurrent layers": tiny_file("qwen35", "Q8_0"),
    "recurrent layers and experts": tiny_file("qwen35moe", "F16"),
    "ternary": tiny_file("bitnet", "TQ2_0"),
    "float32": tiny_file("llama", "F32"),
    "checkpoint with heads to be turned": checkpoint(tiny, "llama"),
    "checkpoint with columns to be ordered": checkpoint(tiny, "qwen35"),
    "checkpoint of a mixture": checkpoint(tiny_mixture, "qwen3moe"),
    "checkpoint of a mixture with heads to be turned": checkpoint(tiny_mixture, "llama"),
}


@dataclass(frozen=True)
class Case:
    """A model, and its answer with all of it in memory."""

    path: Path
    answer: Fingerprint
    weights: int
    q8_0: bool
    """Whether its keys and values can be stored as such."""
    figures: Path
    """Of this machine, measured once for all cases."""

    def load(self, budgets: Budgets) -> Engine:
        return Engine.load(self.path, budgets, measurements=self.figures)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("figures") / "measurements.json"


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, figures: Path) -> Case:
    path = MODELS[request.param](tmp_path_factory.mktemp("budgets") / "山 é.gguf")
    with Engine.load(path, Budgets(context=CONTEXT, threads=2)) as engine:
        assert engine.memory.weights >= engine.info.weight_bytes * 0.9
        q8_0 = request.param in ("dense", "mixture", "ternary")
        return Case(path, engine.fingerprint(PROMPT, TOKENS), engine.info.weight_bytes, q8_0, figures)


LEAST = re.compile(r"at least (\d+\.?\d*) (bytes|kB|MB|GB)")
UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def named_least(path: Path, budgets: Budgets) -> tuple[int, int]:
    """The least budget that the refusal of a smaller one names, and the unit of its last digit, in bytes."""
    with pytest.raises(BudgetError) as caught:
        Engine.load(path, replace(budgets, ram=1)).close()
    found = LEAST.search(str(caught.value))
    assert found, caught.value
    unit = UNITS[found[2]]
    return round(float(found[1]) * unit), max(unit // 10, 1)


SETTINGS = {
    "chosen by the engine": Budgets(),
    "single rows": Budgets(threads=2, io_threads=1, block_rows=1),
    "seven rows, single tokens": Budgets(threads=1, io_threads=3, block_rows=7, chunk=1),
    "many rows, odd chunks": Budgets(threads=2, io_threads=3, block_rows=64, chunk=5),
    "one thread for all": Budgets(threads=1, io_threads=1, chunk=16),
}


@pytest.mark.parametrize(
    ("setting", "share"),
    [
        ("chosen by the engine", 0.0),
        ("chosen by the engine", 0.5),
        ("chosen by the engine", 40.0),
        ("single rows", 0.5),
        ("seven rows, single tokens", 0.0),
        ("many rows, odd chunks", 0.25),
        ("one thread for all", 0.0),
    ],
)
def test_the_answer_is_the_same_under_every_budget(case: Case, setting: str, share: float) -> None:
    """`share` of the weights' bytes are granted beyond the least."""
    budgets = replace(SETTINGS[setting], context=CONTEXT)
    ram = named_least(case.path, budgets)[0] + round(share * case.weights)
    with case.load(replace(budgets, ram=ram)) as engine:
        assert engine.fingerprint(PROMPT, TOKENS) == case.answer
        use = engine.memory
        assert use.total <= ram
        if share == 0:
            assert use.weights < case.weights and use.arena > 0
        if share > 1:
            assert use.arena == 0


def test_the_least_that_a_refusal_names_works_and_less_is_refused(case: Case) -> None:
    budgets = Budgets(context=CONTEXT, threads=2, io_threads=2)
    least, digit = named_least(case.path, budgets)
    with case.load(replace(budgets, ram=least)) as engine:
        assert engine.fingerprint(PROMPT, TOKENS) == case.answer
        assert engine.memory.total <= least
    with pytest.raises(BudgetError):
        case.load(replace(budgets, ram=least - 2 * digit)).close()


def test_kinds_of_caches_give_their_own_answers_under_any_budget(case: Case) -> None:
    for kv in ("f32", "q8_0"):
        budgets = Budgets(context=CONTEXT, kv=kv, threads=2)
        if kv == "q8_0" and not case.q8_0:
            with pytest.raises(SettingsError, match="use the f16 cache"):
                case.load(budgets)
            continue
        with case.load(budgets) as engine:
            wanted = engine.fingerprint(PROMPT, TOKENS)
        with case.load(replace(budgets, ram=named_least(case.path, budgets)[0])) as engine:
            assert engine.fingerprint(PROMPT, TOKENS) == wanted


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_a_cache_that_does_not_fit_is_refused_with_the_ways_out(kv: str, folder: Path) -> None:
    path = write_big(folder / "dense.gguf", DENSE, bytewise)
    budgets = Budgets(context=CONTEXT, kv=kv, threads=2, io_threads=2)
    ram = named_least(path, budgets)[0] + (1 << 20)
    with pytest.raises(BudgetError, match="context") as caught:
        Engine.load(path, replace(budgets, context=DENSE.context, ram=ram)).close()
    assert ("q8_0" in str(caught.value)) == (kv != "q8_0")
