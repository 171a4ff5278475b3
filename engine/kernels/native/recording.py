"""A forward pass as a list of native calls, replayed in one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.kernels.native.library import CCall
from engine.kernels.native.tensors import NativeTensor, Workspace

LONGEST = 16
"""Rows of the longest pass that is recorded: a step, or the check of a draft. Longer ones spend their time in C."""


def c_tokens(tokens: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(tokens))(*tokens)


@dataclass
class Recording:
    """The calls of one pass. Its buffers come from a workspace of its own, so that nobody else writes to them."""

    workspace: Workspace = field(default_factory=Workspace)
    calls: list[CCall] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)

    def finish(self, output: NativeTensor) -> Program:
        return Program((CCall * len(self.calls))(*self.calls), output, self.workspace, tuple(self.kept))


@dataclass(frozen=True)
class Program:
    """Calls to be replayed, the buffer that their result is in, all their buffers, and what else they point at."""

    calls: ctypes.Array[CCall]
    output: NativeTensor
    workspace: Workspace
    kept: tuple[object, ...]

    def run(self, lib: ctypes.CDLL, pool: int | None, tokens: Sequence[int], start: int) -> int:
        """Fill `output`: → a status."""
        status: int = lib.ms_replay(pool, self.calls, len(self.calls), c_tokens(tokens), start)
        return status
