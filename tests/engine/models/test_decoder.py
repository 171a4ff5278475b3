"""What every decoder keeps to, whatever its family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.oracle import CLASSES
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from tests.tiny import CONTEXT, load_model, tiny, write_gguf


class Recorder:
    """Passes operations on, and notes each with its arguments: which handles, and the results of which others."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._results: list[object] = []
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._ops, name)

        def noted(*arguments: object, **options: object) -> object:
            result = operation(*arguments, **options)
            given = [*arguments, *options.values()]
            self.calls.append((name, *options, *(self._mark(argument) for argument in given)))
            self._results.extend(result if isinstance(result, list) else [result])
            return result

        return noted

    def _mark(self, argument: object) -> object:
        """A result by its place among all, numbers and tokens by their kind, everything else by identity."""
        for place, result in enumerate(self._results):
            if argument is result:
                return place
        if isinstance(argument, int | list):
            return type(argument)
        if isinstance(argument, tuple):
            return tuple(map(id, argument))
        return id(argument)


@pytest.mark.parametrize("architecture", CLASSES)
@pytest.mark.parametrize("n", [1, 5])
def test_a_pass_is_the_same_operations_whatever_the_tokens_and_the_position(
    architecture: str, n: int, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny(architecture, attention_bias=True), "Q8_0")
    ops = PlainOps()
    model = load_model(tmp_path / "tiny.gguf", ops)
    caches = [ops.cache(spec, CONTEXT, "f16") for spec in model.caches]
    passes = []
    for tokens, start in (([7] * n, 0), (list(range(n)), n), ([95] * n, CONTEXT - n)):
        recorder = Recorder(ops)
        model.hidden(recorder, tokens, start, caches)
        passes.append(recorder.calls)
    assert passes[0] == passes[1] == passes[2]
    assert len(passes[0]) > 2 * len(caches)
