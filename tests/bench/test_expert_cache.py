from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType

from bench.cache_policies import Asked, asked
from bench.expert_cache import SHARES, TRAINED, Policy, Row, measure, policies, rates, summary, table
from bench.routing import CHUNK, Trace, made_up, recorded, turns, uneven
from tests.engine.models.mixtures import tiny_mixture, write_mixture
from tests.tiny_chat import byte_tokens


@pytest.fixture(scope="module")
def trace() -> Trace:
    return made_up("", TRAINED, tokens=400, layers=3, n_experts=32, k=4, nbytes=(4096, 8192))


def test_a_conversation_is_cut_into_chunks_of_its_prompts_and_single_tokens_of_its_replies() -> None:
    begins, passes = turns(900)
    assert begins == [0, 160]
    assert passes[:3] == ((0, 40), (40, 41), (41, 42))
    assert passes[120:124] == ((159, 160), (160, 672), (672, 860), (860, 861))
    assert [token for start, stop in passes for token in range(start, stop)] == list(range(900))


def test_the_trace_of_a_trained_model_is_as_uneven_as_reported() -> None:
    busiest, same, other = uneven(made_up("", TRAINED, tokens=2400, layers=6))
    assert busiest == pytest.approx(0.57, abs=0.04)
    assert same == pytest.approx(0.857, abs=0.04)
    assert other == pytest.approx(0.375, abs=0.04)


def test_what_is_asked_for_next_is_when_it_is_asked_for_again(trace: Trace) -> None:
    steps = asked(trace)
    for step in steps[:40]:
        for key, again in zip(step.keys, step.next, strict=True):
            later = [other.when for other in steps if other.when > step.when and key in other.keys]
            assert (again == later[0]) if later else (again > len(steps))


def simple(policy: str, trace: Trace, steps: list[Asked], rooms: int) -> int:
    """LRU or LFU of each layer by their definitions: → how many experts were found."""
    kept: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    uses: dict[int, int] = {}
    found = 0
    for step in steps:
        held = kept.setdefault(step.layer, set())
        keys = step.keys.tolist()
        found += len(held.intersection(keys))
        for key in keys:
            last[key], uses[key] = step.when, uses.get(key, 0) + 1
        worth: Callable[[int], tuple[int, ...]] = {
            "LRU": lambda key: (last[key],),
            "LFU": lambda key: (uses[key], last[key]),
        }[policy]
        for key in keys:
            if key in held:
                continue
            if len(held) == rooms:
                least = min(held.difference(keys), key=lambda other: (*worth(other), other), default=None)
                if least is None or worth(least) >= worth(key):
                    continue
                held.remove(least)
            held.add(key)
    return found


@pytest.mark.parametrize("name", ["LRU", "LFU"])
def test_simulated_policies_are_what_they_are_called(name: str, trace: Trace) -> None:
    trace = replace(trace, nbytes=(1, 1, 1))
    steps = asked(trace)
    policy = next(policy for policy in policies(0) if policy.by_layer and policy.name == name)
    found = rates(trace, steps, policy, 0.25)[0] * sum(len(step.keys) for step in steps)
    assert found == pytest.approx(simple(name, trace, steps, 8))


def test_the_bound_is_above_every_policy_and_the_engine_does_what_was_simulated(trace: Trace) -> None:
    steps = asked(trace)
    found = {(policy.by_layer, policy.name): rates(trace, steps, policy, 0.25) for policy in policies(100)}
    for (by_layer, _), (whole, replies) in found.items():
        assert 0 < whole <= found[by_layer, "Belady"][0] < 1 and 0 < replies < 1
    assert found[True, "Slabs"] == found[True, "halved after 1 and 32"]
    assert found[True, "Slabs"][0] > found[True, "pins from a warm-up"][0]


def test_a_cache_for_everything_reads_each_expert_once(trace: Trace) -> None:
    steps = asked(trace)
    asked_for = sum(len(step.keys) * trace.nbytes[step.layer] for step in steps)
    distinct = {int(key): trace.nbytes[step.layer] for step in steps for key in step.keys}
    for policy in policies(100):
        if isinstance(policy, Policy) and policy.name == "pins from a warm-up":
            continue
        assert rates(trace, steps, policy, 1.0)[0] == pytest.approx(1 - sum(distinct.values()) / asked_for)


def test_a_table_has_a_row_for_every_policy(trace: Trace) -> None:
    rows = list(measure(trace))
    lines = list(table(trace, rows))
    assert len(rows) == len(list(policies(0)))
    whole, replies = rows[-1].rates[0]
    assert lines[-1].startswith(f"| a layer | Slabs | {100 * whole:.1f} ({100 * replies:.1f}) |")


def test_the_summary_says_how_far_a_policy_is_behind_the_best_but_for_the_bound() -> None:
    def rows(*figures: float) -> list[Row]:
        return [
            Row("all", name, ((x, 0),) * len(SHARES)) for name, x in zip(("A", "B", "Belady"), figures, strict=True)
        ]

    lines = list(summary([rows(0.5, 0.4, 0.9), rows(0.2, 0.5, 0.9)]))
    assert lines[-2:] == ["| all | A | 15.0 | 30.0 |", "| all | B | 5.0 | 10.0 |"]


def test_what_routers_choose_is_recorded(tmp_path: Path) -> None:
    tokens = [*byte_tokens(), "th"]

    def tokenizer(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([TokenType.NORMAL] * len(tokens))
        writer.add_token_merges(["t h"])

    model = tiny_mixture("qwen3moe", vocab_size=len(tokens), max_position_embeddings=CHUNK, num_experts=16)
    write_mixture(tmp_path / "mixture.gguf", "qwen3moe", model, tokenizer=tokenizer)
    text = "Which of my experts does a token go to? " * 20
    trace = recorded(tmp_path / "mixture.gguf", text, CHUNK + 60)
    assert trace.ids.shape == (CHUNK + 60, 2, 2) and trace.n_experts == 16
    assert trace.nbytes == (3 * 32 * 64 * 4,) * 2
    for start, stop in ((0, CHUNK), (CHUNK, CHUNK + 60)):
        ids = [tokens.index(letter.replace(" ", "Ġ")) for letter in text[start:stop]]
        with torch.no_grad():
            layers = model(torch.tensor([ids]), output_router_logits=True).router_logits
        for layer, logits in enumerate(layers):
            truth = np.sort(logits.numpy().argsort(axis=-1)[:, -2:], axis=-1)
            same = truth == np.sort(trace.ids[start:stop, layer], axis=-1)
            assert same.all(axis=-1).mean() > 0.95  # the rest are decided by less than roundings
