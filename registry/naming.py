"""Models that are elsewhere, as a person asks for them: owner/name, or owner/name:part.

Which of a repository's items is meant is told by a name of it; without one it is the one that suits most machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.errors import DownloadError
from engine.units import NAMED, elided, human_bytes
from registry.items import GGUF, Offer, encoding
from registry.paths import safe_id

USUAL: Final = "Q4_K_M"
"""What most people run: about a third of F16's size, and nearly as good."""
PREFERRED: Final = (
    *(USUAL, "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_L", "Q4_K_S", "UD-Q4_K_M", "UD-Q4_K_S", "IQ4_NL", "IQ4_XS", "UD-IQ4_XS"),
    *("Q4_1", "Q4_0", "MXFP4", "MXFP4_MOE", "NVFP4", "Q5_K_S", "Q5_K_M", "UD-Q5_K_XL", "Q5_1", "Q5_0", "Q6_K"),
    *("UD-Q6_K_XL", "Q8_0", "UD-Q8_K_XL", "Q3_K_L", "Q3_K_M", "UD-Q3_K_XL", "IQ3_M", "Q3_K_S", "IQ3_S", "IQ3_XS"),
    *("TQ2_0", "I2_S", "TQ1_0", "F16", "FP16", "BF16", "F32", "FP32"),
)
"""The usual one and those like it in size, then the larger ones, then the smaller ones, and whole weights last."""
MOST: Final = 40
"""Items that an error lists."""


@dataclass(frozen=True)
class Picked:
    """`why` is part of a sentence: "the only one there"."""

    offer: Offer
    why: str


def remote_name(name: str) -> tuple[str, str] | None:
    """A repository's id, and the part of it that is meant, "" for all; `None` for what is no such name."""
    id, _, part = name.partition(":")
    try:
        return safe_id(id), part.strip()
    except DownloadError:
        return None


def choose(repository: str, offers: Sequence[Offer], name: str = "") -> Picked:
    """The item that is called `name`: as it is offered, by its encoding, by a file of it, or by a part of these that no
    other has. Without a name the only one, or the one nearest to USUAL.

    Raises `DownloadError`, which lists what there is, where none or several are meant, and for one with a problem.
    """
    if not offers:
        raise DownloadError(
            f"{repository} has no model that can be loaded here: neither GGUF nor safetensors files. Look for another "
            "one by millstream search."
        )
    chosen = _named(repository, offers, name) if name else _best(repository, offers)
    if chosen.offer.problem:
        raise DownloadError(f"{chosen.offer.name} of {repository} cannot be loaded. {chosen.offer.problem}")
    return chosen


def _named(repository: str, offers: Sequence[Offer], name: str) -> Picked:
    wanted = name.casefold()
    for matches in (
        [offer for offer in offers if offer.name.casefold() == wanted],
        [offer for offer in offers if wanted in _files(offer)],
        [offer for offer in offers if encoding_of(offer).casefold() == wanted],
        [offer for offer in offers if any(wanted in each for each in (offer.name.casefold(), *_files(offer)))],
    ):
        if len(matches) == 1:
            return Picked(matches[0], "as named")
        if matches:
            raise DownloadError(
                f"“{name}” means several models of {repository}: {listed(matches)}. Choose one by its whole name."
            )
    raise DownloadError(f"{repository} has no “{elided(name, NAMED)}”. It has: {listed(offers)}.")


def _best(repository: str, offers: Sequence[Offer]) -> Picked:
    sound = [offer for offer in offers if not offer.problem]
    if len(sound) <= 1:
        return Picked((sound or list(offers))[0], "the only one there")
    ranks = {name: rank for rank, name in enumerate(PREFERRED)}
    ggufs = [offer for offer in sound if offer.kind == GGUF] or sound
    best = min(ranks.get(encoding_of(offer), len(ranks)) for offer in ggufs)
    nearest = [offer for offer in ggufs if ranks.get(encoding_of(offer), len(ranks)) == best]
    if len(nearest) > 1:
        raise DownloadError(
            f"{repository} has several models: {listed(sound)}. Choose one: millstream pull {repository}:NAME."
        )
    usual = encoding_of(nearest[0]) == USUAL
    why = "small, and nearly as good as the whole weights" if usual else f"the nearest to {USUAL} of those there"
    return Picked(nearest[0], why)


def encoding_of(offer: Offer) -> str:
    """As the path of its weights tells it; "" for a checkpoint."""
    return encoding(offer.files[0].path.rpartition(".")[0]) if offer.kind == GGUF else ""


def listed(offers: Sequence[Offer]) -> str:
    """Names and sizes, one after the other."""
    told = [f"{offer.name} ({human_bytes(offer.nbytes)})" for offer in offers[:MOST]]
    return ", ".join(told) + (f", and {len(offers) - MOST} more" if len(offers) > MOST else "")


def _files(offer: Offer) -> set[str]:
    """What a person may call it by: the paths and names of its weights, with and without their suffix."""
    paths = {file.path.casefold() for file in offer.weights if offer.kind == GGUF}
    paths |= {path.rpartition("/")[2] for path in paths}
    return paths | {path.removesuffix(".gguf") for path in paths}
