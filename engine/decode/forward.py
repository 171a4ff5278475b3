"""Running a model forward over one conversation's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.cancel import Cancel
from engine.decode.cache import KVCache
from engine.decode.finite import not_finite
from engine.decode.prompt import Prompt
from engine.errors import ContextError
from engine.kernels.ops import Ops, Tensor
from engine.memory.meter import Meter
from engine.models.model import OWN, Inset, Model, Tables
from engine.models.rotary import table_bytes
from engine.vision.patches import Picture
from engine.vision.positions import prompt_positions

See = Callable[[Picture, Cancel | None], Tensor]
"""A vision tower at work: → the picture's features, [tokens, width]. A cancelled one raises `Cancelled`."""


def blind(picture: Picture, cancel: Cancel | None) -> Tensor:
    """What a model without a tower makes of pictures."""
    raise AssertionError("a prompt for a model that cannot see has no pictures")


class Forward:
    """A model, the device that it runs on, and the cache that it fills. `see` turns pictures into features. `meter` is
    told of tables for rotary positions that a model's own do not hold."""

    def __init__(self, model: Model, ops: Ops, cache: KVCache, see: See = blind, meter: Meter | None = None) -> None:
        self.model = model
        self.ops = ops
        self.cache = cache
        self._see = see
        self._meter = meter or Meter()
        self._prompt = Prompt(())
        self._tables: Tables = OWN
        self._record()

    @property
    def cached(self) -> Prompt:
        """What the cache holds."""
        stop = len(self.cache)
        return Prompt(self.cache.tokens, tuple(self._prompt.within(0, stop)))

    def begin(self, prompt: Prompt) -> int:
        """The text from here on is `prompt`, which `advance` is given next: → how many of its rows stay cached."""
        kept = self.cache.keep_prefix(prompt)
        self._prompt = prompt
        if self.model.turns and (prompt.pictures or self._tables):
            self._turn(prompt)
        return kept

    def run(self, ops: Ops, tokens: Sequence[int], start: int, cancel: Cancel | None = None) -> Tensor:
        """The pass on `ops`, as it is, with the pictures that begin in it seen anew."""
        return self._pass(ops, tokens, start, self._insets(start, len(tokens), cancel))

    def _insets(self, start: int, n: int, cancel: Cancel | None) -> list[Inset]:
        """The pictures that begin in n rows from `start` on, looked at."""
        return [
            Inset(placed.start - start, placed.picture.tokens, self._see(placed.picture, cancel))
            for placed in self._prompt.within(start, start + n)
        ]

    def _pass(self, ops: Ops, tokens: Sequence[int], start: int, insets: Sequence[Inset]) -> Tensor:
        return self.model.hidden(ops, tokens, start, self.cache.layers, tables=self._tables, insets=insets)

    def _turn(self, prompt: Prompt) -> None:
        """Let rows of pictures, and what follows them, turn by places of their own."""
        places, after = prompt_positions(prompt.segments())
        rest, _ = prompt_positions([self.model.context_length - len(places)], after)
        places = np.concatenate([places, rest])
        if self._tables:
            for turn, table in self._tables.items():
                turn.at(places, table)  # in place: recorded passes point at it
            return
        self._meter.add("tables", table_bytes(self.model.tables[turn] for turn in self.model.turns))
        self._tables = {turn: turn.at(places) for turn in self.model.turns}
        self._record()

    def _record(self) -> None:
        # Without a reference to itself: weights must not wait for the garbage collector.
        model, ops, cache, tables = self.model, self.ops, self.cache, self._tables
        self._hidden = ops.recorded(lambda tokens, start: model.hidden(ops, tokens, start, cache.layers, tables=tables))

    def advance(self, tokens: Sequence[int], cancel: Cancel | None = None) -> Tensor:
        """Compute the next positions for `tokens`: → hidden [n, hidden_size]. The cache holds them on return.

        Raises, with the cache as it was, ContextError where they reach past the model's context or the cache's end, and
        `Cancelled` where that comes while a picture is looked at. After `Cancelled` while weights come from disk, or
        any other exception, the cache holds what it held, or less where the model has recurrent layers.
        """
        needed, room = len(self.cache) + len(tokens), min(self.model.context_length, self.cache.capacity)
        if needed > room:
            raise ContextError(
                f"The text needs {needed} positions, but the context holds {room}; shorten it or allow a longer "
                "context."
            )
        start = len(self.cache)
        insets = self._insets(start, len(tokens), cancel)
        try:
            hidden = self._pass(self.ops, tokens, start, insets) if insets else self._hidden(tokens, start)
            self.cache.extend(tokens)
        except BaseException:
            self.cache.restore()
            raise
        return hidden

    def logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [n, vocabulary] on the host, which later calls may overwrite.

        Raises NumericsError, which names the first layer at fault, where one is NaN or infinite.
        """
        logits: npt.NDArray[np.float32] = self.ops.host(self.model.logits(self.ops, hidden))
        if not np.isfinite(logits).all():
            raise not_finite(self, hidden)
        return logits

    def next_logits(self, hidden: Tensor) -> npt.NDArray[np.float32]:
        """hidden [n, hidden_size] → float32 [vocabulary] for the token after its last row."""
        row: npt.NDArray[np.float32] = self.logits(self.ops.last(hidden, 1))[0]
        return row
