"""What one step of decoding passes over, and what passes of a prompt take: worked out on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.formats.index import TensorIndex
from engine.kernels.native.recording import LONGEST
from engine.memory.outline import outline
from engine.memory.paper import PaperOps, Taken
from engine.memory.uses import Use, VectorUse
from engine.models.model import Model


@dataclass(frozen=True)
class Step:
    """One token's pass, and that of its row through the head: what is used, in order."""

    body: tuple[Use, ...]
    head: tuple[Use, ...]
    vectors: tuple[VectorUse, ...]

    @property
    def uses(self) -> tuple[Use, ...]:
        return self.body + self.head

    @cached_property
    def passed(self) -> Mapping[str, int]:
        """Bytes that are passed over, by tensor: of a table a row, of experts those chosen. One that is not there is
        not used at all."""
        passed: Counter[str] = Counter()
        for use in self.uses:
            for weight, nbytes in zip(use.weights, use.nbytes, strict=True):
                passed[weight.tensor] += nbytes
        for vector in self.vectors:
            passed[vector.tensor] += vector.nbytes
        return passed

    def multiply_adds(self, tokens: int) -> int:
        """Of one token in the model's matrices, where `tokens` of a prefill share the head's one row."""
        return (
            sum(sum(use.multiply_adds) for use in self.body)
            + sum(sum(use.multiply_adds) for use in self.head) // tokens
        )


def step_of(model: Model) -> Step:
    """Of a model from `outline`."""
    ops = PaperOps(1, records=False)
    caches = [ops.cache(spec, 1, "f32") for spec in model.caches]
    hidden = model.hidden(ops, [0], 0, caches)
    body, ops.uses = tuple(ops.uses), []
    model.logits(ops, hidden)
    return Step(body, tuple(ops.uses), tuple(ops.vectors))


def step_of_file(index: TensorIndex) -> Step:
    """Raises as `models.build`."""
    return step_of(outline(index, 1))


def pass_lengths(chunk: int) -> list[int]:
    """Rows of the passes that together take as much room as all that a chunk allows: the rest of a prompt may have any
    number of rows below it."""
    powers = (1 << power for power in range(LONGEST.bit_length(), chunk.bit_length()))
    return sorted({*range(1, min(chunk, LONGEST) + 1), *powers, chunk})


def activation_bytes(
    model: Model, lengths: Iterable[int], *, threads: int, context: int, records: bool = True
) -> dict[int, int]:
    """Bytes of activations at most, after passes of so many rows and of all `lengths` before, at the end of `context`
    positions; after each one a row goes through the head. `records` is that of `PaperOps`; `model` is an outline."""
    told = activations(model, lengths, threads=threads, records=records)
    return {n: taken.nbytes(context) for n, taken in told.items()}


def activations(model: Model, lengths: Iterable[int], *, threads: int, records: bool) -> dict[int, Taken]:
    """The same for any context."""
    ops, told = PaperOps(threads, records), {}
    caches = [ops.cache(spec, 1, "f32") for spec in model.caches]
    forward = ops.recorded(lambda tokens, start: model.hidden(ops, tokens, start, caches))
    for n in lengths:
        model.logits(ops, ops.last(forward([0] * n, 0), 1))
        told[n] = ops.taken()
    return told
