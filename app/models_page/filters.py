"""Which repositories of a search are shown. No Qt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from registry.sources.source import Repository

Size = Literal["any", "small", "medium", "large"]
Licence = Literal["any", "open", "other"]

SIZES: dict[Size, tuple[float, float]] = {
    "any": (0, 1e18),
    "small": (0, 4e9),
    "medium": (4e9, 15e9),
    "large": (15e9, 1e18),
}
"""Weights, from … to."""
OPEN = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "unlicense", "isc"})
"""Licences that let anybody use a model for anything, as the Hub names them."""
BYTES_A_WEIGHT = 0.6
"""Of the usual quantisations of four bits, with their scales and the layers that are kept finer."""
SEES = frozenset({"image-text-to-text", "vision", "multimodal", "any-to-any", "image-to-text", "vlm"})
_COUNT = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,3})?)\s?([BM])(?![A-Za-z0-9])", re.IGNORECASE)
_SEEING = re.compile(
    r"(?:^|[-_./])(?:vl|vlm|vision|llava|pixtral|smolvlm2?|moondream\d?|minicpm-v)(?:$|[-_.\d])", re.IGNORECASE
)


@dataclass(frozen=True)
class Filter:
    """`room` is how many bytes of memory a model may take here; 0 where nobody knows."""

    fits: bool = False
    sees: bool = False
    size: Size = "any"
    licence: Licence = "any"
    room: int = 0

    def passes(self, repository: Repository) -> bool:
        """What is not known of a repository is not held against it, but where sight or licence is asked for."""
        weights = weights_of(repository)
        low, high = SIZES[self.size]
        if weights is not None and not low <= weights < high:
            return False
        if weights is None and self.size != "any":
            return False
        if self.fits and (fits_likely(repository, self.room) is False or not _known(repository)):
            return False
        if self.sees and not sees(repository):
            return False
        return self.licence == "any" or (self.licence == "open") == (repository.licence.lower() in OPEN)


def fits_likely(repository: Repository, room: int) -> bool | None:
    """Whether so much memory holds the usual quantisation; None where that cannot be told."""
    weights = weights_of(repository)
    return weights * BYTES_A_WEIGHT <= room if weights is not None and room else None


def _known(repository: Repository) -> bool:
    from registry.known import known

    return known(repository)


def weights_of(repository: Repository) -> float | None:
    """How many weights a model has by its name: the first number in it that counts them; of "30B-A3B" all of them."""
    match = _COUNT.search(repository.id.rpartition("/")[2].replace("_", "-"))
    return float(match[1]) * (1e9 if match[2] in "Bb" else 1e6) if match else None


def sees(repository: Repository) -> bool:
    return bool(SEES & {tag.lower() for tag in repository.tags}) or _SEEING.search(repository.id) is not None
