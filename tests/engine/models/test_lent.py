"""Whole models whose weights are lent window by window: the fingerprint of those in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bench.accuracy import teacher_forced
from engine.errors import ModelFileError
from engine.kernels.native import NativeOps
from engine.kernels.native.handles import AnyStack, Matrix
from engine.kernels.ops import Stack, Weight
from tests.engine.models.families import FAMILIES
from tests.engine.models.judge import TOKENS
from tests.engine.models.test_sweep import TABLE, Swept, answer, same
from tests.lender import ArrayLender
from tests.tiny import load_model


class LendingOps(NativeOps):
    """Takes weights from the store that keeps them in memory, and has those that `lends` names lent back."""

    def __init__(self, lender: ArrayLender, lends: Callable[[str], bool] = lambda name: True) -> None:
        super().__init__(threads=2)
        self.lender, self.lends = lender, lends

    def matrix(self, weight: Weight) -> Matrix:
        return super().matrix(self.lender.lent(weight) if self.lends(weight.name) else weight)

    def stack(self, weight: Stack) -> AnyStack:
        return super().stack(self.lender.lent(weight) if self.lends(weight.name) else weight)


def some(name: str) -> bool:
    """Of every kind of layer some matrices, of a mixture's stacks not all three."""
    return any(part in name for part in ("attn_q", "attn_output", "ffn_up", "gate_exps", "ffn_down", "token_embd"))


def write(name: str, path: Path) -> None:
    swept, family = TABLE.get(name, Swept()), FAMILIES[name]
    family.write(path, family.make(**swept.changes), swept.encodings[-1])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_architecture_answers_as_from_memory(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "tiny.gguf")
    with closing(NativeOps(threads=2)) as ops:
        model = load_model(tmp_path / "tiny.gguf", ops)
        whole = teacher_forced(model, ops, TOKENS, kv="f32")
        fingerprint = answer(model, ops, 5)
    for lends in (lambda name: True, some):
        lender = ArrayLender()
        with closing(LendingOps(lender, lends)) as ops:
            model = load_model(tmp_path / "tiny.gguf", ops)
            assert not lender.windows
            assert same(teacher_forced(model, ops, TOKENS, kv="f32"), whole)
            assert {answer(model, ops, chunk) for chunk in (1, 7, len(TOKENS))} == {fingerprint}
            assert lender.windows and not lender.busy


@pytest.mark.parametrize("name", ["qwen3", "qwen3moe", "deepseek v2"])
def test_after_a_fault_of_the_disk_the_model_answers_as_before(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "tiny.gguf")
    lender = ArrayLender()
    with closing(LendingOps(lender)) as ops:
        model = load_model(tmp_path / "tiny.gguf", ops)
        fingerprint, asked = answer(model, ops, 7), lender.windows
        held = ops.nbytes
        for fault in (0, asked // 3, asked - 2):
            lender.fault = fault
            with pytest.raises(ModelFileError, match="does not answer"):
                answer(model, ops, 7)
            assert not lender.busy
            assert answer(model, ops, 7) == fingerprint
        assert ops.nbytes == held
