"""The whole engine on real weights: the starter model."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Budgets, Engine, Fingerprint, Finished, Message, Settings, Text
from engine.kernels.native import NativeOps

PROMPT = "The miller opened the sluice, and the wheel began to turn. All morning the stones ground the corn, until"


@pytest.fixture(scope="module")
def expected(starter: Path) -> Fingerprint:
    with Engine.load(starter, Budgets(threads=2, context=64)) as engine:
        return engine.fingerprint(PROMPT, 6)


@pytest.mark.parametrize(
    ("threads", "chunk", "isa"), [(1, 512, None), (2, 1, None), (2, 7, None), (1, 7, "portable"), (2, 512, "portable")]
)
def test_one_model_one_answer(starter: Path, expected: Fingerprint, threads: int, chunk: int, isa: str | None) -> None:
    with Engine.load(starter, Budgets(context=64), ops=NativeOps(threads, isa)) as engine:
        assert engine.fingerprint(PROMPT, 6, chunk=chunk) == expected


def test_it_answers_in_english_and_remembers_the_turn_before(starter: Path) -> None:
    greedy = Settings(temperature=0, max_tokens=24)
    with Engine.load(starter, Budgets(context=256)) as engine:
        messages = [Message("user", "What is a water mill?")]
        first = list(engine.chat(messages, greedy))
        answer = "".join(event.text for event in first if isinstance(event, Text))
        assert "water mill is" in answer
        messages += [Message("assistant", answer), Message("user", "And where are they found?")]
        second = list(engine.chat(messages, greedy))
        finished = second[-1]
        assert isinstance(finished, Finished)
        # All of the first turn but its last token, which was never fed back.
        assert finished.usage.cached_tokens == first[-1].usage.prompt_tokens + 23
