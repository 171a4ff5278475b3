"""Mixtures of experts by the contract (CONTRACT.md, section 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.kernels.plain.functions import F32


@dataclass(frozen=True)
class Routing:
    """Per token the chosen experts in ascending id, `ids` int32 [n, k], and their weights float32 [n, k]."""

    ids: npt.NDArray[np.int32]
    weights: F32


@np.errstate(all="ignore")
def route(
    scores: F32,
    k: int,
    *,
    bias: F32 | None = None,
    groups: int = 1,
    groups_kept: int = 1,
    normalise: bool = False,
    scale: float = 1.0,
) -> Routing:
    """Choose k experts by `scores` (already softmax or sigmoid) plus `bias`; weights are the scores without bias.

    With groups, a group's mark is the sum of its two best choices (its best where it holds one expert), and only the
    best `groups_kept` groups take part. Ties go to the lower index.
    """
    n, n_experts = scores.shape
    choice = scores if bias is None else scores + bias
    if groups > 1:
        per_group = choice.reshape(n, groups, -1)
        best = -np.sort(-per_group, axis=-1)
        marks = best[..., 0] + best[..., 1] if best.shape[-1] > 1 else best[..., 0]
        kept = np.argsort(-marks, axis=-1, kind="stable")[:, :groups_kept]
        open_groups = np.zeros((n, groups), bool)
        np.put_along_axis(open_groups, kept, True, axis=-1)
        choice = np.where(np.repeat(open_groups, n_experts // groups, axis=-1), choice, np.float32(-np.inf))
    ids = np.sort(np.argsort(-choice, axis=-1, kind="stable")[:, :k], axis=-1).astype(np.int32)
    weights = np.take_along_axis(scores, ids, axis=-1)
    if normalise:
        total = np.zeros(n, np.float32)
        for column in range(k):
            total = total + weights[:, column]
        weights = weights / total[:, None]
    return Routing(ids, weights * np.float32(scale))


@np.errstate(all="ignore")
def combine(outputs: Sequence[F32], weights: F32, shared: F32 | None = None) -> F32:
    """Σ weights[:, j]·outputs[j] by ascending expert id, outputs k × [n, width]; the shared experts' sum comes last."""
    out = np.zeros_like(outputs[0])
    for j, output in enumerate(outputs):
        out = out + weights[:, j, None] * output
    return out if shared is None else out + shared
