"""Mixtures of experts by the contract (CONTRACT.md, section 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.kernels.ops import Router
from engine.kernels.plain.functions import F32, sigmoid
from engine.kernels.plain.normalise import softmax


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
    marks: int = 2,
    normalise: bool = False,
    scale: float = 1.0,
) -> Routing:
    """Choose k experts by `scores` (already softmax or sigmoid) plus `bias`; weights are the scores without bias.

    With groups, a group's mark is the sum of its `marks` best choices (of all where it holds fewer), and only the best
    `groups_kept` groups take part. Ties go to the lower index; NaN is chosen last, as −Inf is.
    """
    n, n_experts = scores.shape
    choice = _ranked(scores if bias is None else scores + bias)
    if groups > 1:
        per_group = choice.reshape(n, groups, -1)
        best = -np.sort(-per_group, axis=-1)
        mark = np.zeros((n, groups), np.float32)
        for place in range(min(marks, best.shape[-1])):
            mark = mark + best[..., place]
        kept = np.argsort(-_ranked(mark), axis=-1, kind="stable")[:, :groups_kept]
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


def _ranked(choice: F32) -> F32:
    return np.where(np.isnan(choice), np.float32(-np.inf), choice)


@np.errstate(all="ignore")
def routed(logits: F32, router: Router, bias: F32 | None) -> Routing:
    """`route` by the scores of a router's logits [n, n_experts]; where one is NaN, all scores of its row are."""
    scores = softmax(logits) if router.scores == "softmax" else sigmoid(logits)
    scores = np.where(np.isnan(logits).any(axis=-1, keepdims=True), np.float32(np.nan), scores)
    return route(
        scores,
        router.k,
        bias=bias,
        groups=router.groups,
        groups_kept=router.groups_kept,
        marks=router.marks,
        normalise=router.normalise,
        scale=router.scale,
    )


def mixed(x: F32, routing: Routing, width: int, expert: Callable[[int, F32], F32]) -> F32:
    """What `expert(id, rows)` makes of the rows of x that go to it, combined: [n, columns] → [n, width]."""
    outputs = np.zeros((routing.ids.shape[1], len(x), width), np.float32)
    for number in np.unique(routing.ids):
        row, place = np.nonzero(routing.ids == number)
        outputs[place, row] = expert(int(number), x[row])
    return combine(list(outputs), routing.weights)


@np.errstate(all="ignore")
def combine(outputs: Sequence[F32], weights: F32, shared: F32 | None = None) -> F32:
    """Σ weights[:, j]·outputs[j] by ascending expert id, outputs k × [n, width]; the shared experts' sum comes last."""
    out = np.zeros_like(outputs[0])
    for j, output in enumerate(outputs):
        out = out + weights[:, j, None] * output
    return out if shared is None else out + shared
