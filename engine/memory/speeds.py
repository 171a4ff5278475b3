"""How fast the kernels of this machine go through weights: measured on made-up ones of the encodings that a model has.

What a memory gives away at most (`engine.memory.floors`) says little of that: unpacking some encodings takes longer
than reading them, and a pass of many small matrices waits for its threads more often than for its bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from engine import weights
from engine.buffers import U8, in_large_pages
from engine.kernels.native import NativeOps
from engine.kernels.ops import Weight
from engine.memory.figures import Speed, Speeds
from engine.memory.machine import free_memory

BUFFER: Final = 64 << 20
"""Bytes of weights, more than the caches of most processors hold: a pass over them reads memory."""
LEAST: Final = 16 << 20
WIDE, NARROW = 2048, 512
"""Rows and columns of the matrices, of which the second take threads longer to come together for than to compute."""
CHUNK: Final = 64
"""Rows of a prefill."""
SECONDS: Final = 0.25
"""How long each is repeated. What counts is the mean, as for the answer that is foretold."""
USUAL: Final = "Q8_0"
"""The encoding of the narrow matrices."""


def measure_speeds(encodings: Collection[str], threads: int) -> Speeds | None:
    """Measure with so many threads, in about half a second for each encoding; `None` where memory is too short."""
    nbytes = min(BUFFER, free_memory() // 4)
    if nbytes < LEAST:
        return None
    try:
        data = _weights(nbytes)
    except MemoryError:
        return None
    with closing(NativeOps(threads)) as ops:
        told = {encoding: _speed(ops, encoding, data) for encoding in {USUAL, *encodings}}
        matrices = _matrices(ops, USUAL, NARROW, data)
        each = _seconds(ops, matrices, NARROW, 1) / len(matrices)
        walk = max(each - _row_bytes(USUAL, NARROW) * NARROW / told[USUAL].passed, 0.0)
    return Speeds(told, walk)


def _weights(nbytes: int) -> U8:
    """Bytes that are ordinary numbers in every encoding: neither NaN nor so small that processors slow down."""
    data = in_large_pages(nbytes)
    some = np.random.default_rng(0).integers(0x10, 0x30, 1 << 20, dtype=np.uint8)
    for start in range(0, nbytes, some.size):
        data[start : start + some.size] = some[: nbytes - start]
    return data


def _speed(ops: NativeOps, encoding: str, data: U8) -> Speed:
    matrices = _matrices(ops, encoding, WIDE, data)
    passed = len(matrices) * WIDE * _row_bytes(encoding, WIDE) / _seconds(ops, matrices, WIDE, 1)
    few = matrices[:4]
    return Speed(passed, CHUNK * len(few) * WIDE * WIDE / _seconds(ops, few, WIDE, CHUNK))


def _matrices(ops: NativeOps, encoding: str, width: int, data: U8) -> list[Any]:
    """Square ones, one behind the other."""
    row = _row_bytes(encoding, width)
    each = row * width
    cut = (data[start : start + each].reshape(width, row) for start in range(0, len(data) - each + 1, each))
    return [ops.matrix(Weight(f"matrix {at}", encoding, width, width, part)) for at, part in enumerate(cut)]


def _row_bytes(encoding: str, columns: int) -> int:
    known = weights.get(encoding)
    return columns // known.block * known.block_bytes


def _seconds(ops: NativeOps, matrices: Sequence[Any], width: int, rows: int) -> float:
    """That a pass of so many rows takes through all matrices, each of them after a norm, as in a model."""
    table = ops.matrix(Weight("table", "F32", 1, width, np.ones((1, width), np.float32).view(np.uint8)))
    norm = ops.vector(np.ones(width, np.float32))

    def forward(tokens: Sequence[int], start: int) -> Any:
        x = y = ops.embed(table, tokens)
        for matrix in matrices:
            y = ops.linear(ops.rms_norm(x, norm, 1e-5), matrix)
        return y

    tokens = [0] * rows
    recorded = ops.recorded(forward)
    return _mean(lambda: recorded(tokens, 0))


def _mean(work: Callable[[], object]) -> float:
    """Seconds of one run, of as many as there is time for, after one that finds everything cold."""
    work()
    runs, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SECONDS or not runs:
        work()
        runs += 1
    return passed / runs
