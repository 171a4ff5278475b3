"""How a file stretches rotary positions past the length that its model was first trained on.

Linear: Chen et al., Position Interpolation (arXiv:2306.15595). YaRN: Peng et al. (arXiv:2309.00071), sections 3.2 to
3.4. LongRoPE: Ding et al. (arXiv:2402.13753). Keys and defaults are those of llama.cpp (`load_hparams` and
`llama_context`), but that YaRN's own attention factor counts wherever a converter has written it.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.errors import UnsupportedModelError
from engine.models.metadata import Metadata
from engine.models.rotary import F64, inverse_frequencies

KINDS: Final = ("none", "linear", "yarn", "longrope")
MAX_CONTEXT: Final = 2**31
LEAST_RAMP: Final = 1e-3


@dataclass(frozen=True)
class Scaling:
    """`factor` slows the turning; `amplitude` multiplies the tables; `original_context` is the length first trained on.

    YaRN slows down pairs that turn less than `beta_slow` times in that length, leaves those that turn more than
    `beta_fast` times, and blends between. The blend begins and ends at whole pairs, if `whole_pairs`.
    """

    kind: str
    factor: float
    amplitude: float
    original_context: int
    beta_fast: float
    beta_slow: float
    whole_pairs: bool = True

    @staticmethod
    def read(keys: Metadata, context_length: int) -> Scaling:
        """From the keys of an architecture, whose file claims `context_length`.

        Raises ModelFileError for what cannot be true, UnsupportedModelError for what is not run.
        """
        kind = keys.text("rope.scaling.type", default="linear")
        if kind not in KINDS:
            raise UnsupportedModelError(
                f"The model's rotary scaling {reprlib.repr(kind)} ({keys.whole('rope.scaling.type')}) is not one of "
                f"those known: {', '.join(KINDS)}."
            )
        older_name = keys.number("rope.scale_linear", low=1.0, high=1e6, default=1.0)
        factor = keys.number("rope.scaling.factor", low=1.0, high=1e6, default=older_name)
        amplitude = keys.number("rope.scaling.attn_factor", low=1e-3, high=1e3, default=1.0)
        if kind == "yarn":
            _refuse_other(keys, "rope.scaling.yarn_ext_factor", 1.0)
            _refuse_other(keys, "rope.scaling.yarn_log_multiplier", 0.0)
            own = 0.1 * math.log(factor) + 1
            amplitude *= keys.number("rope.scaling.yarn_attn_factor", low=1e-3, high=1e3, default=own)
        return Scaling(
            kind=kind,
            factor=1.0 if kind == "none" else factor,
            amplitude=amplitude,
            original_context=keys.integer(
                "rope.scaling.original_context_length", high=MAX_CONTEXT, default=context_length
            ),
            beta_fast=keys.number("rope.scaling.yarn_beta_fast", low=1e-3, high=1e6, default=32.0),
            beta_slow=keys.number("rope.scaling.yarn_beta_slow", low=1e-3, high=1e6, default=1.0),
        )

    def frequencies(self, theta: float, dims: int) -> F64:
        """Radians per position of pairs 0 … dims/2 - 1: float64 [dims/2]."""
        plain = inverse_frequencies(theta, dims)
        if self.kind != "yarn":
            return plain / self.factor
        first, last = self._pair(self.beta_fast, theta, dims), self._pair(self.beta_slow, theta, dims)
        if self.whole_pairs:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, dims - 1)
        slowed: F64 = np.clip((np.arange(dims // 2) - first) / max(last - first, LEAST_RAMP), 0, 1)
        return plain * (1 - slowed) + plain / self.factor * slowed

    def _pair(self, turns: float, theta: float, dims: int) -> float:
        """The pair, of any fraction, that turns so often in the original context."""
        return dims * math.log(self.original_context / (2 * math.pi * turns)) / (2 * math.log(theta))


def _refuse_other(keys: Metadata, key: str, only: float) -> None:
    if keys.number(key, low=-1e6, high=1e6, default=only) != only:
        raise UnsupportedModelError(
            f"The model's {keys.whole(key)} is {keys.number(key, low=-1e6, high=1e6)}; this engine runs {only} alone."
        )
