"""Over weights that are lent: window by window, or gathered into an array by who computes with whole ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import numpy as np

from engine.kernels.lending import Lent
from engine.kernels.ops import Stack, Weight

T = TypeVar("T")
Kind = TypeVar("Kind", Weight, Stack)


@contextmanager
def walking(windows: Iterator[T]) -> Iterator[Iterator[T]]:
    """The windows, closed whatever comes: before that their lender can be asked for nothing else."""
    try:
        yield windows
    finally:
        close = getattr(windows, "close", None)
        if close is not None:
            close()


def gathered(weight: Kind, lent: Lent) -> Kind:
    """The weight or stack with all of its bytes in memory."""
    count = weight.n_experts if isinstance(weight, Stack) else weight.rows
    data = np.empty((count, *weight.data.shape[1:]), np.uint8)
    with walking(lent.lender.walk([lent])) as windows:
        for window in windows:
            data[window.first : window.first + len(window.data[0])] = window.data[0]
    return replace(weight, data=data, lent=None)


def gathered_experts(gate: Stack, up: Stack, down: Stack, ids: Sequence[int]) -> tuple[Stack, Stack, Stack]:
    """The stacks in memory, with zeros for experts other than those of the ascending `ids`, which alone are read where
    all three are lent."""
    stacks = gate, up, down
    if gate.lent is None or up.lent is None or down.lent is None:
        gate, up, down = (each if each.lent is None else gathered(each, each.lent) for each in stacks)
        return gate, up, down
    parts = gates, ups, downs = [np.zeros((each.n_experts, *each.data.shape[1:]), np.uint8) for each in stacks]
    with walking(gate.lent.lender.experts(gate.lent, up.lent, down.lent, ids)) as windows:
        for window in windows:
            for into, data in zip((downs,) if window.down else (gates, ups), window.data, strict=True):
                into[window.expert, window.first : window.first + len(data)] = data
    gate, up, down = (replace(each, data=data, lent=None) for each, data in zip(stacks, parts, strict=True))
    return gate, up, down
