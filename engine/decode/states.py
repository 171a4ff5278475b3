"""The recurrent states of one conversation, and how they go back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.kernels.ops import LayerCache, LayerSpec, Ops
from engine.kernels.state import StateSpec

SNAPSHOTS: Final = 2
"""Copies of all states that a conversation keeps: of its last two prompts, since a template may render the reply to the
last one, or reasoning and tool calls of the one before, otherwise than they were written."""


def state_bytes(specs: Sequence[LayerSpec]) -> int:
    """Bytes of one set of states."""
    return sum(spec.nbytes for spec in specs if isinstance(spec, StateSpec))


class States:
    """The states where the conversation stands, and up to `snapshots` copies from earlier positions.

    A state has taken in every position before it and cannot give one up again. To go back is to take a copy from that
    position or an earlier one, or to begin anew: a pass from position 0 needs no state.
    """

    def __init__(self, ops: Ops, layers: Sequence[LayerCache], snapshots: int) -> None:
        """`layers` may hold keys and values too, which are left alone."""
        self._ops = ops
        self._live = tuple(layer for layer in layers if isinstance(layer.spec, StateSpec))
        self._free = [tuple(ops.cache(layer.spec, 0, layer.kind) for layer in self._live) for _ in range(snapshots)]
        self._kept: dict[int, tuple[LayerCache, ...]] = {}
        self._at: int | None = 0

    def close(self) -> None:
        """Let the memory go."""
        self._live = ()
        self._free.clear()
        self._kept.clear()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._live)

    def moved(self, position: int | None) -> None:
        """They stand at `position` now; `None` where a pass was cut short and nobody knows."""
        self._at = position

    def keep(self) -> None:
        """Copy them where they stand, over the copy of the lowest position where there is no room for another."""
        if not self._live or not self._at or self._at in self._kept or not (self._free or self._kept):
            return
        copy = self._free.pop() if self._free else self._kept.pop(min(self._kept))
        for source, target in zip(self._live, copy, strict=True):
            self._ops.copy_state(source, target)
        self._kept[self._at] = copy

    def back(self, position: int) -> int:
        """Go back to `position`, or to the last one before it of which there is a state: → where they stand.

        Copies of later positions are dropped: what follows from here may differ.
        """
        if not self._live:
            return position
        self._free += [self._kept.pop(at) for at in list(self._kept) if at > position]
        if self._at != position:
            self._at = max(self._kept, default=0)
            for source, target in zip(self._kept.get(self._at, ()), self._live, strict=False):
                self._ops.copy_state(source, target)
        return self._at
