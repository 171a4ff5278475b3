"""Recorded passes of the native kernels: a replay gives what the pass gives, and nobody else writes to its buffers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import NumericsError
from engine.kernels.native import NativeOps
from engine.kernels.native.recording import LONGEST
from engine.kernels.ops import AttentionSpec, CacheSpec
from engine.models.model import Model
from tests.engine.kernels.cases import same_bits
from tests.tiny import load_model, tiny, write_gguf


@pytest.fixture
def ops() -> Iterator[NativeOps]:
    made = NativeOps(2)
    yield made
    made.close()


@pytest.fixture(params=["qwen3", "gemma2", "gemma4", "phi3"])
def model(ops: NativeOps, tmp_path: Path, request: pytest.FixtureRequest) -> Model:
    write_gguf(tmp_path / "tiny.gguf", tiny(request.param, tie_word_embeddings=True), "Q8_0")
    return load_model(tmp_path / "tiny.gguf", ops)


class Passes:
    """The model's pass and its recorded twin, each with caches of its own; `calls` counts runs of the model itself."""

    def __init__(self, ops: NativeOps, model: Model, kind: str = "f16") -> None:
        self.ops, self.calls = ops, 0
        plain = [ops.cache(spec, 64, kind) for spec in model.caches]
        own = [ops.cache(spec, 64, kind) for spec in model.caches]

        def counted(tokens, start):
            self.calls += 1
            return model.hidden(ops, tokens, start, own)

        self.direct = lambda tokens, start: model.hidden(ops, tokens, start, plain)
        self.recorded = ops.recorded(counted)

    def agree(self, tokens: list[int], start: int) -> bool:
        direct = self.ops.host(self.direct(tokens, start)).copy()
        return same_bits(self.ops.host(self.recorded(tokens, start)), direct)


@pytest.mark.parametrize("n", [1, 3, LONGEST])
def test_a_replay_gives_the_bits_of_the_pass_for_other_tokens_and_positions(ops, model, n) -> None:
    passes = Passes(ops, model)
    for start in range(0, 64 - n, n):
        assert passes.agree([(7 * (start + i)) % 96 for i in range(n)], start)
    assert passes.agree([5] * n, 2)  # over positions that were filled before
    assert passes.calls == 1


def test_a_pass_too_long_to_be_recorded_runs_each_time(ops, model) -> None:
    passes = Passes(ops, model)
    for start in (0, LONGEST + 1):
        assert passes.agree(list(range(LONGEST + 1)), start)
    assert passes.calls == 2


def test_passes_of_different_lengths_do_not_share_results(ops, model) -> None:
    passes = Passes(ops, model)
    one = ops.host(passes.recorded([3], 0))
    kept = one.copy()
    passes.recorded([4, 5], 1)
    passes.direct([6], 0)
    assert same_bits(one, kept)


def test_replays_take_no_more_memory(ops, model) -> None:
    passes = Passes(ops, model)
    passes.recorded([1], 0)
    held = ops.nbytes
    for position in range(1, 20):
        passes.recorded([position], position)
    assert ops.nbytes == held


def test_memory_of_recordings_goes_with_them(ops, model) -> None:
    passes = Passes(ops, model)
    passes.direct([1], 0)
    held = ops.nbytes
    passes.recorded([1], 0)
    assert ops.nbytes > held
    del passes
    gc.collect()
    assert ops.nbytes == held


def test_a_failed_pass_is_not_kept_and_a_failed_replay_is_an_error(ops) -> None:
    cache = ops.cache(CacheSpec(1, 8, 8), 8, "f16")
    scale = {"by": 1e9}
    ones = ops.vector(np.ones(8, np.float32))

    def attend(tokens, start):
        x = ops._workspace.take(len(tokens), 8)
        x.array()[:] = scale["by"]
        normed = ops.rms_norm(x, ones, 1e-6)
        return ops.attention(normed, x, x, cache, AttentionSpec(1, 1.0), start)

    recorded = ops.recorded(attend)
    with pytest.raises(NumericsError):
        recorded([0], 0)
    scale["by"] = 1.0
    assert np.isfinite(ops.host(recorded([0], 0))).all()
