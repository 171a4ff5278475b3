"""What a model takes of memory, part by part, worked out from its file alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from engine.cancel import Cancel
from engine.decode.cache import cache_bytes
from engine.formats.index import TensorIndex
from engine.memory.blocks import most_room
from engine.memory.outline import whole_outline
from engine.memory.planner import GRANULE, items_of
from engine.memory.step import activation_bytes, pass_lengths, step_of
from engine.models.rotary import table_bytes
from engine.types import Budgets
from engine.vision.eyes import Eyes
from engine.vision.needs import tower_needs


class Needs:
    """What a model takes, part by part."""

    def __init__(
        self, index: TensorIndex, budgets: Budgets, eyes: Eyes | None, threads: int, cancel: Cancel | None = None
    ) -> None:
        """Raises as `whole_outline`."""
        self.index, self.budgets, self.threads = index, budgets, threads
        self.outlined = whole_outline(index, 1, cancel)
        self.model = self.outlined.model
        self.step = step_of(self.model)
        self.items = items_of(index, self.outlined, self.step)
        self.weights = sum(item.nbytes for item in self.items)
        self.held_always = sum(item.nbytes for item in self.items if not item.can_be_lent)
        self.eyes = eyes
        self.activations = lru_cache(self._activations)
        self._told = lru_cache(self._activations_by_chunk)

    @property
    def chunks(self) -> list[int]:
        """Rows of a chunk, from what is asked for down to 1 by powers of two."""
        return list(_halves(self.budgets.chunk))

    @cached_property
    def vision(self) -> int:
        """The tower at work on its largest picture, and the pass over all that picture's rows at once."""
        if self.eyes is None:
            return 0
        tower, rows = tower_needs(self.eyes.index, self.budgets.max_patches, self.threads)
        longer = rows > self.budgets.chunk
        passed = activation_bytes(self.model, [rows], threads=self.threads, context=rows, records=False)[rows]
        return self.eyes.nbytes + tower + (passed if longer else 0)

    def kv(self, context: int) -> int:
        return self.kv_as(context, self.budgets.kv)

    def kv_as(self, context: int, kind: str) -> int:
        return cache_bytes(self.model.caches, context, kind)

    def tables(self, context: int) -> int:
        """Those of the model, and of a conversation with pictures where these turn by places of their own."""
        tables = self.model.tables
        return context * table_bytes([*tables.values(), *(tables[turn] for turn in self.model.turns)])

    def _activations_by_chunk(self, context: int, records: bool, most: int) -> dict[int, int]:
        lengths = sorted(n for n in {*pass_lengths(self.budgets.chunk), *self.chunks} if n <= most)
        return activation_bytes(self.model, lengths, threads=self.threads, context=context, records=records)

    def _activations(self, context: int, chunk: int, resident: bool) -> int:
        """Of passes of up to so many rows. Where tables are lent, the rows that are looked up are among them."""
        looked_up = (use.weights[0].row_bytes for use in self.step.uses if use.way == "rows")
        lent = 0 if resident else chunk * sum(looked_up)
        return self._told(context, resident, 1 if chunk == 1 else self.budgets.chunk)[chunk] + lent

    def beside(self, context: int, chunk: int, resident: bool) -> int:
        """All but weights and what they stream through."""
        return self.activations(context, chunk, resident) + self.kv(context) + self.tables(context) + self.vision

    def resident(self, context: int, chunk: int) -> int:
        return self.weights + self.beside(context, chunk, True)

    def streamed(self, context: int, chunk: int) -> int:
        """With as much from disk as can be."""
        return self.held_always + self.beside(context, chunk, False) + 2 * self.least_block

    def least(self, context: int) -> int:
        return min(self.resident(context, 1), self.streamed(context, 1))

    @cached_property
    def least_block(self) -> int:
        """Bytes that the rows which are used together, of all matrices of a walk, lie in at most, wherever they lie."""
        return self.block_of(None)

    def block_of(self, rows: int | None) -> int:
        """The same for so many rows, by default as few as come together."""
        granules = {name: item.granule for item in self.items for name in item.tensors}
        largest = 0
        for use in self.step.uses:
            blocks = [use.weights[:2], use.weights[2:]] if use.way == "experts" else [use.weights]
            for weights in blocks:
                count = [
                    min(rows or granules[weight.tensor] or GRANULE, weight.rows * weight.matrices) for weight in weights
                ]
                room = sum(most_room(n * weight.row_bytes) for n, weight in zip(count, weights, strict=True))
                largest = max(largest, room)
        return largest


def _halves(chunk: int) -> Iterator[int]:
    yield chunk
    power = 1 << (chunk - 1).bit_length() >> 1
    while power >= 1 and chunk > 1:
        yield power
        power >>= 1
