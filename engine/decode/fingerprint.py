"""A model's answer as one number: what must not change with threads, chunks, instruction sets or placement."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine.decode.forward import Forward
from engine.kernels.ops import Tensor
from engine.types import Fingerprint

BLOCK = 16
"""Rows of logits held at once: 17 MB at a vocabulary of 262,144."""


def fingerprint(forward: Forward, prompt: Sequence[int], n: int, *, chunk: int) -> Fingerprint:
    """Read `prompt` into an empty cache in chunks, then take `n` tokens greedily, end tokens like any other.

    The hash is sha256 over the logits of every position that was computed, in order: those of all prompt positions,
    then those of the first n - 1 new tokens, `len(prompt) + n - 1` rows in all. A row is `vocabulary` float32 values,
    each as its four bytes, little-endian. Raises NumericsError where a logit is not finite.
    """
    digest = hashlib.sha256()

    def absorb(hidden: Tensor, rows: int) -> int:
        """Hash the logits of all rows: → the likeliest token after the last."""
        for start in range(0, rows, BLOCK):
            logits = forward.logits(forward.ops.rows(hidden, start, min(start + BLOCK, rows)))
            digest.update(logits.astype("<f4").tobytes())
        return int(logits[-1].argmax())

    likeliest = -1
    for start in range(0, len(prompt), chunk):
        piece = prompt[start : start + chunk]
        likeliest = absorb(forward.advance(piece), len(piece))
    tokens = [likeliest]
    while len(tokens) < n:
        tokens.append(absorb(forward.advance(tokens[-1:]), 1))
    return Fingerprint(tuple(tokens), digest.hexdigest())
