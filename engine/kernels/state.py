"""What a recurrent layer keeps of the positions before, and how its operations share it out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MAX_TAPS: Final = 16
"""Taps that every device can convolve."""
NORM_EPS: Final = 1e-6
"""Added under the root of the L2 norm of queries and keys (Transformers, `l2norm` of `modeling_qwen3_5`)."""


@dataclass(frozen=True)
class StateSpec:
    """The state of one recurrent layer, float32: the last `taps - 1` inputs of a convolution over `channels`, and for
    each of `n_heads` value heads what it has learnt, [key_dim, value_dim].

    Value head h reads with the query and writes with the key of key head `h mod n_key_heads`.
    """

    channels: int
    taps: int
    n_key_heads: int
    n_heads: int
    key_dim: int
    value_dim: int

    @property
    def inputs(self) -> tuple[int, int]:
        """Shape of the inputs kept, the oldest first."""
        return self.taps - 1, self.channels

    @property
    def memory(self) -> tuple[int, int, int]:
        """Shape of what was learnt."""
        return self.n_heads, self.key_dim, self.value_dim

    @property
    def nbytes(self) -> int:
        return 4 * (math.prod(self.inputs) + math.prod(self.memory))

    @property
    def scale(self) -> float:
        """What normed queries are multiplied with."""
        return 1 / math.sqrt(self.key_dim)
