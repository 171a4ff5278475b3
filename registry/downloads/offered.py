"""From what a repository offers to what is downloaded as one."""

from __future__ import annotations

import re

from registry.downloads.record import Wanted
from registry.items import GGUF, Offer

_PART = re.compile(r"(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE)


def wanted_of(offer: Offer, licence: str = "") -> Wanted:
    """A GGUF model is named by its file, and by the offer's name where the file does not tell its encoding; a
    checkpoint by its repository."""
    first = offer.files[0]
    if offer.kind != GGUF:
        return Wanted(first.repository.rpartition("/")[2], offer.files, None, licence)
    stem = _PART.sub("", first.name)
    told = offer.name.casefold() in stem.casefold() or stem.casefold() in offer.name.casefold()
    name = (stem if len(offer.name) <= len(stem) else offer.name) if told else f"{stem}-{offer.name}"
    return Wanted(name.replace("/", "-"), offer.files, first, licence)
