"""How a model would run on this machine, as the page tells it. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.placement import Translate, as_it_is, speed

Kind = Literal["gpu", "memory", "disk", "cannot", "unknown"]
"""Each has words, a shape and a colour role of its own, so that none of the three carries the meaning alone."""

ROLES = {"gpu": "accent", "memory": "accent", "disk": "warn", "cannot": "bad", "unknown": "muted"}
"""The theme's colour for each kind."""


@dataclass(frozen=True)
class Fitness:
    """`why` is a sentence on what stands against something better, "" where nothing does; `tok_s` and `first_token_s`
    are None where nothing was measured."""

    kind: Kind
    why: str = ""
    tok_s: float | None = None
    first_token_s: float | None = None

    @property
    def runs(self) -> bool:
        return self.kind != "cannot"

    @property
    def role(self) -> str:
        return ROLES[self.kind]


UNKNOWN = Fitness("unknown")


def words(fitness: Fitness, tr: Translate = as_it_is) -> str:
    """The label, with the speed where one is foretold."""
    label = {
        "gpu": tr("fits the GPU"),
        "memory": tr("fits memory"),
        "disk": tr("streams from disk"),
        "cannot": tr("cannot run here"),
        "unknown": tr("not known yet"),
    }[fitness.kind]
    return f"{label}, {speed(fitness.tok_s, tr)}" if fitness.runs and fitness.tok_s else label


def explained(fitness: Fitness, tr: Translate = as_it_is) -> str:
    """All that there is to say, for a tooltip."""
    said = [words(fitness, tr)]
    if fitness.first_token_s is not None and fitness.first_token_s >= 1:
        wait = tr("the first word of an answer comes after about {n} s").format(n=f"{fitness.first_token_s:.0f}")
        said.append(wait)
    told = "; ".join(said)
    return f"{told[:1].upper()}{told[1:]}.{' ' + fitness.why if fitness.why else ''}"
