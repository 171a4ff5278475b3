"""Whether the engine has a model for what a source lists, before any of its files is looked at."""

from __future__ import annotations

from typing import Final

from engine.info import knows
from registry.sources.source import Repository

TOWER: Final = "clip"
"""The architecture of a file that models see with. A source may have read that one, which tells nothing of the rest."""


def known(repository: Repository) -> bool:
    """Whether a model of its architecture can be loaded, as far as the source tells."""
    return repository.architecture in ("", TOWER) or knows(repository.architecture)
