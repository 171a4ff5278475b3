"""A model of the catalogue as the page shows it. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.models_page.fitness import Fitness

Place = Literal["best", "better", "faster", "other", "more"]
"""Why it is where it is in the list: the best for this computer, a better one that streams, a faster one, one of
another family, or one of all the rest."""


@dataclass(frozen=True)
class Suggestion:
    """`nbytes` is about what is downloaded; the true size is the Hub's to tell. `why` is a sentence."""

    name: str
    good_for: str
    repository: str
    quantisation: str
    nbytes: int
    fitness: Fitness
    place: Place
    why: str = ""
    licence: str = ""
    context: int = 0
    sees: bool = False
    thinks: bool = False
    gated: bool = False
