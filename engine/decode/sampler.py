"""Picking the next token from logits, the same on every machine for the same seed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.kernels.plain import exp, uniform
from engine.types import Settings

F32 = npt.NDArray[np.float32]

LARGEST = np.finfo(np.float32).max
GROUP = 64
"""Logits that are looked at together to find the top k."""
CACHED = 8192
"""Elements for which the intermediate values of `exp` stay in the processor's first caches."""


class Sampler:
    """Draws tokens under `settings`, in the order: repetition penalty, temperature, top-k, top-p, min-p.

    A draw depends on the logits, the tokens seen, the seed and the position alone. Probabilities are the contract's
    `exp((logit - max) / temperature)` in float32, added up in float64 in descending order of the logit, ties by
    ascending id (CONTRACT.md, "Sampling").
    """

    def __init__(self, settings: Settings, seed: int, vocabulary: int) -> None:
        """`settings.seed` is not looked at: whoever draws a fresh seed passes it in."""
        self._settings = settings
        self._seed = seed
        self._temperature = np.float32(settings.temperature)
        self._penalty = np.float32(settings.repetition_penalty)
        self._seen = np.zeros(vocabulary, np.bool_)

    def see(self, tokens: Iterable[int]) -> None:
        """These tokens stand in the context: the repetition penalty holds for them from now on."""
        if self._penalty != 1:
            self._seen[list(tokens)] = True

    def sample(self, logits: F32, position: int) -> int:
        """Finite logits, float32 [vocabulary] → the token for `position`."""
        if self._penalty != 1:
            logits = self._penalised(logits)
        if self._temperature == 0:
            return int(logits.argmax())
        with np.errstate(over="ignore"):
            gaps = (logits.max() - logits) / self._temperature
        ascending = self._nearest(gaps)
        weights = _exp(-ascending)
        mass = np.cumsum(weights, dtype=np.float64)
        kept = self._kept(weights, mass)
        target = uniform(self._seed, position) * mass[kept - 1]
        rank = min(int(np.searchsorted(mass[:kept], target, side="right")), kept - 1)
        ties_before = rank - int(np.searchsorted(ascending, ascending[rank], side="left"))
        return int(np.flatnonzero(gaps == ascending[rank])[ties_before])

    def _penalised(self, logits: F32) -> F32:
        """Keskar et al. 2019, section 4.1, with the sign minded: a token seen before always becomes less likely."""
        seen = np.flatnonzero(self._seen)
        logits = logits.copy()
        values = logits[seen]
        with np.errstate(over="ignore"):
            values = np.where(values > 0, values / self._penalty, values * self._penalty)
        logits[seen] = np.clip(values, -LARGEST, LARGEST)
        return logits

    def _nearest(self, gaps: F32) -> F32:
        """The gaps to the largest logit in ascending order; the first `top_k` of them where that is set."""
        k = self._settings.top_k
        if not 0 < k < gaps.size:
            return np.sort(gaps)
        columns = gaps.size // GROUP
        if columns >= k:
            # Of k groups each has a gap as small as the k-th smallest of all groups' least, so larger ones are out.
            least = gaps[: columns * GROUP].reshape(GROUP, columns).min(axis=0)
            gaps = gaps[gaps <= np.partition(least, k - 1)[k - 1]]
        return np.sort(gaps)[:k]

    def _kept(self, weights: F32, mass: npt.NDArray[np.float64]) -> int:
        """How many of the likeliest tokens top-p and min-p leave, at least one."""
        kept = weights.size
        if self._settings.top_p < 1:
            # Holtzman et al. 2020: the smallest set whose mass reaches top_p.
            kept = int(np.searchsorted(mass, self._settings.top_p * mass[-1], side="left")) + 1
        if self._settings.min_p > 0:
            # Nguyen et al. 2024: at least min_p times as likely as the likeliest, whose weight is 1.
            kept = min(kept, int(np.count_nonzero(weights >= np.float32(self._settings.min_p))))
        return max(min(kept, weights.size), 1)


def _exp(x: F32) -> F32:
    result = np.empty_like(x)
    for start in range(0, x.size, CACHED):
        result[start : start + CACHED] = exp(x[start : start + CACHED])
    return result
