"""What a decoder does with the rows of pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.kernels.ops import Ops, Tensor
from engine.models.model import Inset


def embedded(
    ops: Ops, embed: Callable[[Sequence[int]], Tensor], tokens: Sequence[int], insets: Sequence[Inset], width: int
) -> Tensor:
    """[n, width]: `embed` of the tokens, and the features of pictures in their rows."""
    if not insets:
        return embed(tokens)
    parts, done = [], 0
    for inset in insets:
        if done < inset.start:
            parts.append(embed(tokens[done : inset.start]))
        parts.append(_level(ops, inset, 0, width))
        done = inset.start + inset.rows
    if done < len(tokens):
        parts.append(embed(tokens[done:]))
    return ops.joined(parts)


def deepened(ops: Ops, x: Tensor, insets: Sequence[Inset], layer: int, width: int) -> Tensor:
    """x [n, width], which `layer` made, with the features of that level added to the rows of pictures."""
    for inset in insets:
        if layer + 1 < inset.features.shape[1] // width:
            stop = inset.start + inset.rows
            seen = ops.add(ops.rows(x, inset.start, stop), _level(ops, inset, layer + 1, width))
            x = ops.joined([ops.rows(x, 0, inset.start), seen, ops.rows(x, stop, x.shape[0])])
    return x


def mutual(insets: Sequence[Inset], start: int, n: int) -> list[int] | None:
    """The end of the positions that each of n rows from `start` on sees, where all rows of a picture see each other."""
    if not insets:
        return None
    ends = list(range(start + 1, start + n + 1))
    for inset in insets:
        stop = inset.start + inset.rows
        ends[inset.start : stop] = [start + stop] * inset.rows
    return ends


def _level(ops: Ops, inset: Inset, level: int, width: int) -> Tensor:
    return ops.pick(inset.features, 1, level * width, (level + 1) * width)
