"""What a model takes of memory, part by part, worked out from its file alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache

from engine.cancel import Cancel
from engine.decode.cache import cache_bytes
from engine.formats.index import TensorIndex
from engine.memory.blocks import most_room
from engine.memory.outline import whole_outline
from engine.memory.paper import Taken
from engine.memory.planner import GRANULE, items_of
from engine.memory.step import activations, pass_lengths, step_of
from engine.models.rotary import table_bytes
from engine.types import Budgets
from engine.vision.eyes import Eyes
from engine.vision.needs import tower_needs


class Anatomy:
    """What a model is made of, worked out once from its file, for whatever is granted afterwards."""

    def __init__(self, index: TensorIndex, eyes: Eyes | None, cancel: Cancel | None = None) -> None:
        """Raises as `whole_outline`."""
        self.index, self.eyes = index, eyes
        self.outlined = whole_outline(index, 1, cancel)
        self.model = self.outlined.model
        self.step = step_of(self.model)
        self.items = items_of(index, self.outlined, self.step)
        self.weights = sum(item.nbytes for item in self.items)
        self.held_always = sum(item.nbytes for item in self.items if not item.can_be_lent)
        self.looked_up = sum(use.weights[0].row_bytes for use in self.step.uses if use.way == "rows")
        """Bytes of the rows that a token looks up in tables."""
        self.block_of = lru_cache(self._block_of)
        self.cache_bytes = lru_cache(self._cache_bytes)
        self.taken = lru_cache(self._taken)
        self.tower = lru_cache(self._tower)

    def _cache_bytes(self, context: int, kind: str) -> int:
        return cache_bytes(self.model.caches, context, kind)

    def _taken(self, lengths: tuple[int, ...], threads: int, records: bool) -> dict[int, Taken]:
        return activations(self.model, lengths, threads=threads, records=records)

    def _tower(self, max_patches: int | None, threads: int, chunk: int) -> int:
        """The tower at work on its largest picture, and the pass over all that picture's rows at once, where these are
        more than a chunk's."""
        if self.eyes is None:
            return 0
        tower, rows = tower_needs(self.eyes.index, max_patches, threads)
        passed = self.taken((rows,), threads, False)[rows].nbytes(rows) if rows > chunk else 0
        return self.eyes.nbytes + tower + passed

    def _block_of(self, rows: int | None) -> int:
        """Bytes that so many rows, by default as few as come together, lie in at most, of all matrices of a walk."""
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


class Needs:
    """What a model takes, part by part. `anatomy` is that of the same file and eyes, where it is worked out already."""

    def __init__(
        self, index: TensorIndex, budgets: Budgets, eyes: Eyes | None, threads: int, *, anatomy: Anatomy | None = None
    ) -> None:
        self.index, self.budgets, self.threads, self.eyes = index, budgets, threads, eyes
        self._anatomy = anatomy = anatomy or Anatomy(index, eyes)
        self.model, self.step, self.items = anatomy.model, anatomy.step, anatomy.items
        self.weights, self.held_always = anatomy.weights, anatomy.held_always
        self.block_of = anatomy.block_of

    @property
    def chunks(self) -> list[int]:
        """Rows of a chunk, from what is asked for down to 1 by powers of two."""
        return list(_halves(self.budgets.chunk))

    @property
    def vision(self) -> int:
        """The tower at work on its largest picture."""
        return self._anatomy.tower(self.budgets.max_patches, self.threads, self.budgets.chunk)

    def kv(self, context: int) -> int:
        return self.kv_as(context, self.budgets.kv)

    def kv_as(self, context: int, kind: str) -> int:
        return self._anatomy.cache_bytes(context, kind)

    def tables(self, context: int) -> int:
        """Those of the model, and of a conversation with pictures where these turn by places of their own."""
        tables = self.model.tables
        return context * table_bytes([*tables.values(), *(tables[turn] for turn in self.model.turns)])

    def activations(self, context: int, chunk: int, resident: bool) -> int:
        """Of passes of up to so many rows. Where tables are lent, the rows that are looked up are among them."""
        lent = 0 if resident else chunk * self._anatomy.looked_up
        lengths = (1,) if chunk == 1 else self._lengths
        return self._anatomy.taken(lengths, self.threads, resident)[chunk].nbytes(context) + lent

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted({*pass_lengths(self.budgets.chunk), *self.chunks}))

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

    @property
    def least_block(self) -> int:
        """Bytes that the rows which are used together, of all matrices of a walk, lie in at most, wherever they lie."""
        return self.block_of(None)


def _halves(chunk: int) -> Iterator[int]:
    yield chunk
    power = 1 << (chunk - 1).bit_length() >> 1
    while power >= 1 and chunk > 1:
        yield power
        power >>= 1
